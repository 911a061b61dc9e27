// Starts the browser of a scenario: Chromium, or with BROWSER=firefox the stock Firefox of Debian.
import { createRequire } from 'node:module';

const require = createRequire(new URL('../../frontend/package.json', import.meta.url));
const { chromium, firefox } = require('playwright-core');

export const isFirefox = process.env.BROWSER === 'firefox';

export function launch() {
  return isFirefox ? launchFirefox() : launchChromium();
}

const launchChromium = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
  });

/** Playwright drives a Firefox that it did not build through WebDriver BiDi. */
async function launchFirefox() {
  const browser = await firefox.launch({
    channel: 'moz-firefox',
    executablePath: process.env.FIREFOX ?? '/usr/bin/firefox-esr',
  });
  ignoreMissingEmulation(browser);
  return browser;
}

/**
 * Playwright overrides the color scheme of every page, which releases of Firefox for organizations do not
 * know yet. The scenarios do not depend on it, so such an answer is not an error.
 */
function ignoreMissingEmulation(browser) {
  const session = browser._connection.toImpl(browser)._browserSession;
  const send = session.send.bind(session);
  session.send = async (method, params) => {
    try {
      return await send(method, params);
    } catch (error) {
      if (method.startsWith('emulation.') && /unknown command/.test(error.message)) return {};
      throw error;
    }
  };
}
