// The timeline of the GPUs: why a GPU was idle, opening a job, moving by keyboard, zooming and panning, the
// forecast; with 8 and with 64 GPUs, also on a phone.
import { busyGpu } from '../data.mjs';

export default async ({ fake, page, open, until, assert }) => {
  fake.jobs.get(1).name = '<img src=x onerror=alert(1)>';
  await open('/gpus?hours=24');
  await page.waitForSelector('.timeline .tl-block');
  assert.equal(await page.locator('.tl-row').count(), 8);
  assert.ok((await page.locator('.tl-row .tl-block.forecast').count()) > 5);

  // A block under the pointer keeps its pattern.
  const idle = page.locator('[aria-label="GPU 3"] .tl-waiting').first();
  const background = () => idle.evaluate((one) => getComputedStyle(one).background);
  const usual = await background();
  assert.match(usual, /gradient/);
  await idle.hover();
  await page.waitForSelector('.tl-tip');
  assert.equal(await background(), usual);

  // Why was GPU 3 idle?
  await idle.click();
  const details = page.getByRole('region', { name: 'Details of the chosen block' });
  assert.match(await details.innerText(), /GPU 3/);
  assert.match(await details.innerText(), /no job ran although jobs waited: reserved for job 25/);
  assert.equal(await details.locator('a').first().getAttribute('href'), '#/jobs/25');
  await page.keyboard.press('Escape');
  await until(async () => (await details.count()) === 0, 'the details are closed');

  // Only one block is in the tab order; the arrow keys move, and Enter opens the job.
  assert.equal(await page.locator('.tl-block[tabindex="0"]').count(), 1);
  await page.locator('[aria-label="GPU 0"] .tl-block').first().focus();
  const focused = () => page.evaluate(() => document.activeElement.getAttribute('aria-label'));
  await page.keyboard.press('ArrowDown');
  assert.match(await focused(), /^GPU 1, /);
  await page.keyboard.press('ArrowUp');
  await page.keyboard.press('ArrowRight');
  assert.match(await focused(), /^GPU 0, job \d+ .*\(\d+h\d\dm\)$/);
  await page.waitForSelector('.tl-tip');
  const link = await page.evaluate(() => document.activeElement.getAttribute('href'));
  await page.keyboard.press('Enter');
  await until(async () => page.url().endsWith(link), 'Enter opens the job');
  await page.goBack();
  await page.waitForSelector('.timeline .tl-block');

  // Zooming and panning are in the address; Now returns to the last hours.
  const range = async () => {
    const query = new URLSearchParams((await page.evaluate(() => location.hash)).split('?')[1]);
    return [Number(query.get('from')), Number(query.get('to'))];
  };
  await page.getByRole('button', { name: 'Zoom in' }).click();
  const [from, to] = await range();
  assert.ok(Math.abs(to - from - 15 * 3600) < 5, `${to - from}`);
  await page.getByRole('button', { name: 'Earlier' }).click();
  assert.ok((await range())[1] < to);
  const before = (await range())[0];
  const rows = await page.locator('.tl-rows').boundingBox();
  await page.mouse.move(rows.x + 300, rows.y + 20);
  await page.mouse.down();
  await page.mouse.move(rows.x + 500, rows.y + 20, { steps: 4 });
  await page.mouse.up();
  await until(async () => (await range())[0] < before - 3600, 'dragging pans');
  assert.match(page.url(), /#\/gpus\?/, 'a drag opens nothing');
  await page.getByRole('button', { name: 'Now' }).click();
  assert.deepEqual(await range(), [0, 0]);

  // 64 GPUs, at desktop and phone size: no horizontal scrolling, and the charts of one GPU on demand.
  fake.gpus = Array.from({ length: 64 }, (_, i) => ({
    ...busyGpu(i % 8, 15),
    index: i,
    uuid: `GPU-${i}`,
  }));
  fake.publish([15]);
  await until(async () => (await page.locator('.tl-row').count()) === 64, '64 rows');
  for (const width of [1280, 390]) {
    await page.setViewportSize({ width, height: 844 });
    const excess = () =>
      page.evaluate(() => document.documentElement.scrollWidth - document.body.clientWidth);
    await until(async () => (await excess()) <= 0, `no horizontal scrolling at ${width}`);
  }
  await page.locator('.gpus [aria-label="GPU 12"]').getByText('Charts').click();
  await page.waitForSelector('[aria-label="Charts of GPU 12"] canvas');
};
