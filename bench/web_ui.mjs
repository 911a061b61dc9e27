// `node web_ui.mjs LINK REPEATS`: open screens of a web server in Chromium, and print for each the milliseconds
// from the navigation until its content is drawn. A new tab for each; the browser has been here before.
import { launch } from '../tests/web_ui/browsers.mjs';

const [link, repeats] = process.argv.slice(2);
const SCREENS = {
  'sweep, curves and table': [
    '#/sweeps/big',
    () =>
      document.querySelectorAll('.legend li').length >= 40 &&
      document.querySelector('table[aria-label=Trials] tbody td'),
  ],
  'sweep, curves in groups': [
    '#/sweeps/big?group=lr',
    () =>
      document.querySelectorAll('.legend li').length >= 10 &&
      document.querySelector('table[aria-label=Trials] tbody td'),
  ],
  'comparison of 20 trials': ['#/compare?runs=big', () => document.querySelector('.compare .best')],
  history: ['#/history', () => document.querySelector('table tbody td')],
  GPUs: ['#/gpus', () => document.querySelector('.timeline, .gpu')],
  overview: ['#/', () => document.querySelector('main .gpu')],
};

const browser = await launch();
const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
const base = new URL(link);
const login = await context.newPage();
await login.goto(link);
await login.waitForSelector('main .gpu, main .empty');
await login.close();

const found = {};
for (let round = 0; round < Number(repeats); round++) {
  for (const [name, [hash, isDrawn]] of Object.entries(SCREENS)) {
    const page = await context.newPage();
    const begin = performance.now();
    await page.goto(`${base.origin}/${hash}`, { waitUntil: 'commit' });
    await page.waitForFunction(isDrawn, null, { polling: 'raf', timeout: 60_000 });
    await page.evaluate(
      () => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))),
    );
    (found[name] ??= []).push(Math.round(performance.now() - begin));
    await page.close();
  }
}
console.log(JSON.stringify(found));
await browser.close();
