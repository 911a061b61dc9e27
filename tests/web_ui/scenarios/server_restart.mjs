// The server stops and restarts.
import { Fake } from '../fake.mjs';

import { contrastProblems } from './accessibility.mjs';

export default async ({ fake, page, open, until, assert }) => {
  await page.clock.install();
  await open();
  await page.waitForSelector('.status.live');
  // The server responds long after the last change: a stream ends normally, and the next one starts.
  const start = await page.evaluate(() => Date.now());
  await page.clock.fastForward(30_000);
  const requests = () => fake.requests.filter((one) => one === 'GET /api/events').length;
  const before = requests();
  for (const stream of fake.streams) stream.end(': ping\n\n');
  await until(() => requests() > before && fake.streams.size === 1);
  await page.waitForSelector('.status.live');
  const port = fake.port;
  await fake.close();
  await page.waitForSelector('.banner.bad >> text=The server does not answer');
  assert.equal(await page.locator('main.stale').count(), 1);
  const said = await page.locator('.banner.bad').innerText();
  const [hours, minutes, seconds] = /from (\d+):(\d+):(\d+)/.exec(said).slice(1).map(Number);
  const contact = new Date(start).setHours(hours, minutes, seconds);
  assert.ok(contact - start >= 29_000, said);
  // Running jobs may have ended in the meantime, so their clocks stop.
  const time = page
    .getByRole('table', { name: 'Running jobs' })
    .locator('[data-id="15"] td')
    .last();
  await page.clock.fastForward(2000);
  const shown = await time.innerText();
  await page.clock.fastForward(120_000);
  assert.equal(await time.innerText(), shown);
  assert.deepEqual(await page.evaluate(contrastProblems), [], 'the text is still readable');
  assert.ok(await page.locator('[data-id="21"]').count(), 'the old data is still shown');

  // Only the banner reports the problem: no message, and no error on the screen.
  await page.locator('[data-id="21"]').focus();
  await page.keyboard.press('h');
  await open('/jobs/3');
  await page.waitForSelector('main .loading');
  await page.clock.fastForward(1000);
  assert.equal(await page.locator('.toast, main .failed').count(), 0);
  assert.equal((await page.locator('body').innerText()).match(/does not answer/g).length, 1);

  const second = new Fake(30);
  second.eventId = fake.eventId + 1000;
  second.add({ command: 'echo after the restart', name: 'afterwards' });
  await second.listen(port);
  await page.waitForSelector('.banner.bad', { state: 'detached' });
  await page.waitForSelector('h1 >> text=./prepare.sh'); // the failed request is repeated
  await open('/history');
  await page.waitForSelector('text=afterwards');
  assert.equal(await page.locator('main.stale').count(), 0);
  second.add({ command: 'echo live again', name: 'live again' });
  await page.waitForSelector('text=live again');
  await second.close();
};
