// The job screen, opened from a list.
export default async ({ fake, page, open, assert, until }) => {
  fake.change(2, { params: { lr: 0.001, note: 'a b' }, attempts: 2 });
  await open();
  await page
    .getByRole('table', { name: 'Running jobs' })
    .locator('[data-id="15"] a')
    .first()
    .click();
  await page.waitForSelector('h1:has-text("resnet50-base")');
  assert.match(page.url(), /#\/jobs\/15$/);
  const text = await page.locator('main').innerText();
  assert.match(text, /running[\s\S]*GPU 0/);
  assert.match(text, /python train\.py --model resnet50/);
  assert.match(text, /val_loss\s+0\.2134/);
  await until(async () => (await page.locator('.charts canvas').count()) >= 6);
  await page.click('button:has-text("acc")');
  await page.waitForSelector('.plot canvas[aria-label^="acc over steps"]');

  // The chart shows the point next to the pointer, and is as wide as its section.
  const chart = page.locator('.plot:has(canvas[aria-label^="acc over steps"])');
  await chart.scrollIntoViewIfNeeded();
  const box = await chart.boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  assert.match(await chart.locator('output').innerText(), /^\d\.\d+ step \d+$/);
  await page.mouse.move(box.x + box.width / 2, box.y - 40);
  await chart.locator('output').waitFor({ state: 'detached' });
  const drawn = await chart.locator('canvas').boundingBox();
  assert.ok(Math.abs(drawn.width - box.width) < 2 && Math.abs(drawn.height - 200) < 2);

  assert.equal(
    await page.getByRole('region', { name: 'Events' }).count(),
    0,
    'no section without events',
  );

  fake.change(2, {
    exit_code: 3,
    state: 'failed',
    events: [{ at: new Date().toISOString(), kind: 'priority', data: '7' }],
  });
  await open('/jobs/2');
  await page.waitForSelector('text=Attempts');
  assert.match(await page.getByRole('region', { name: 'Attempts' }).innerText(), /exit 3/);
  assert.match(await page.getByRole('region', { name: 'Events' }).innerText(), /priority 7/);
  assert.match(await page.locator('main').innerText(), /Parameters[\s\S]*lr[\s\S]*0\.001/);

  await open('/jobs/999');
  await page.waitForSelector('.failed >> text=there is no job 999');

  // The clone form starts with the options of the job.
  await open('/jobs/2');
  await page.click('text=Clone and edit');
  await until(async () => (await page.inputValue('textarea[name=command]')).startsWith('bash -lc'));
  assert.equal(await page.inputValue('input[name=name]'), 'eval nightly');
  assert.equal(await page.inputValue('input[name=cwd]'), '/home/ada/vision');
};
