// `node dev/shots.mjs DIRECTORY`: screenshots of every screen, at desktop and phone size, light and dark.
import { mkdirSync } from 'node:fs';
import { chromium } from 'playwright-core';
import { Fake } from '../../tests/web_ui/fake.mjs';
import { someFiles } from '../../tests/web_ui/files.mjs';

const folder = process.argv[2] ?? '/tmp/stoker-shots';
const only = process.argv[3];
mkdirSync(folder, { recursive: true });
const SIZES = { desktop: { width: 1440, height: 900 }, phone: { width: 390, height: 844 } };
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox'],
});

for (const count of [0, 30, 10_000]) {
  const fake = await new Fake(count).listen();
  const live = [...fake.jobs.values()].find((one) => one.state === 'running');
  if (live) fake.files = new Map([[live.id, someFiles()]]);
  const bad = [...fake.jobs.values()].find((one) => one.state === 'failed');
  const waiting = [...fake.jobs.values()].find((one) => one.state === 'queued');
  const screens =
    count === 30
      ? {
          overview: '/',
          job: `/jobs/${live.id}`,
          failed: `/jobs/${bad.id}`,
          waiting: `/jobs/${waiting.id}`,
          log: `/jobs/${live.id}/log`,
          sweeps: '/sweeps',
          sweep: '/sweeps/brave-otter',
          compare: '/compare?runs=brave-otter',
          submit: '/submit',
          sweepform: '/submit?kind=sweep',
          history: '/history',
          gpus: '/gpus',
        }
      : {
          overview: '/',
          history: '/history',
          sweeps: '/sweeps',
          ...(count ? { sweep: '/sweeps/brave-otter' } : {}),
        };
  for (const [size, viewport] of Object.entries(SIZES)) {
    for (const theme of ['light', 'dark']) {
      const context = await browser.newContext({
        viewport,
        colorScheme: theme,
        deviceScaleFactor: size === 'phone' ? 2 : 1,
        hasTouch: size === 'phone',
      });
      const page = await context.newPage();
      await page.goto(fake.link);
      await page.waitForSelector('.gpu');
      for (const [name, path] of Object.entries(screens)) {
        if (only && !`${name}-${count}-${size}-${theme}`.includes(only)) continue;
        await page.goto(`${fake.url}/#${path}`);
        await page.waitForTimeout(500);
        if (name === 'sweepform') {
          await page.fill('textarea[name=command]', 'python train.py --lr {lr} --seed {seed}');
          await page.fill('[aria-label="Values of lr"]', '1e-3,1e-4');
          await page.fill('[aria-label="Values of seed"]', 'range(3)');
          await page.waitForSelector('.preview li');
        }
        await page.screenshot({ path: `${folder}/${name}-${count}-${size}-${theme}.png` });
      }
      await context.close();
    }
  }
  await fake.close();
}
await browser.close();
