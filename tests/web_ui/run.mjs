// `node run.mjs SCENARIO [LINK]`: run a scenario in a real browser, with the fake server
// or with the server at LINK. With BROWSER=firefox, in Firefox instead of Chromium.
import assert from 'node:assert/strict';
import { isFirefox, launch } from './browsers.mjs';
import { Fake } from './fake.mjs';

const [name, link] = process.argv.slice(2);
const scenario = await import(`./scenarios/${name}.mjs`);
const WAIT = 200_000; // what takes this long will not happen any more

const fake = link ? null : await new Fake(scenario.jobs ?? 30).listen();
const browser = await launch();
const problems = [];
const contexts = [];
const requests = new Set(); // those without an answer

/** A separate browser context with its own cookies, storage and locks. Errors in it fail the test. */
async function newContext(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(WAIT);
  await context.addInitScript(keepMessages);
  context.on('weberror', (error) => {
    // Firefox also reports errors in its own services here, such as `Network request failed` of one that
    // cannot reach Mozilla.
    if (!/^(resource|chrome):/.test(error.location().url))
      problems.push(`error: ${error.error().stack}`);
  });
  context.on('console', (message) => {
    if (message.type() === 'error' && !/Failed to load resource|ERR_|net::/.test(message.text()))
      problems.push(`console: ${message.text()}`);
  });
  context.on('request', (one) => !one.url().endsWith('/api/events') && requests.add(one));
  for (const end of ['requestfinished', 'requestfailed'])
    context.on(end, (one) => requests.delete(one));
  context.on('dialog', (dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  contexts.push(context);
  return context;
}

/** Messages vanish after some time; on a busy machine, that would be before a scenario looks for them. */
function keepMessages() {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync('.toast { animation-play-state: paused !important }');
  document.adoptedStyleSheets.push(sheet);
}

async function until(check, what = check.toString()) {
  const end = Date.now() + WAIT;
  for (;;) {
    const value = await check();
    if (value) return value;
    assert.ok(Date.now() < end, `timed out waiting for: ${what}`);
    await new Promise((go) => setTimeout(go, 50));
  }
}

/** Wait until a page has shown what it knows, and waits for no answer. */
async function settled(page) {
  const frame = () =>
    page.evaluate(
      () =>
        new Promise((go) =>
          requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(go))),
        ),
    );
  const isBusy = async () =>
    [...requests].some((one) => one.frame().page() === page) ||
    (await page.locator('.loading, [aria-busy=true]').count()) > 0;
  let quiet = 0;
  await until(async () => {
    await frame();
    quiet = (await isBusy()) ? 0 : quiet + 1;
    return quiet === 2;
  }, 'a screen that is complete');
}

let failure = null;
try {
  const context = await newContext(scenario.options);
  const page = await context.newPage();
  const open = async (path = '/') => {
    if (page.url() === 'about:blank') {
      await page.goto(link ?? fake.link);
      await page.waitForSelector('main .gpu, main .empty');
    }
    if (path !== '/') await page.evaluate((hash) => (location.hash = hash), `#${path}`);
  };
  await scenario.default({
    fake,
    browser,
    context,
    newContext,
    page,
    open,
    until,
    settled,
    assert,
    link: link ?? fake.link,
  });
  assert.deepEqual(problems, []);
} catch (error) {
  failure = error;
  console.error(failure, problems);
  const shown = contexts.flatMap((context) => context.pages())[0];
  if (shown) {
    if (!isFirefox)
      await shown.screenshot({ path: `/tmp/stoker-web-ui-${name}.png` }).catch(() => undefined);
    console.error(
      await shown.evaluate(() => document.body.innerText.slice(0, 1500)).catch(() => ''),
    );
  }
}
await browser.close();
await fake?.close().catch(() => undefined);
process.exit(failure ? 1 : 0);
