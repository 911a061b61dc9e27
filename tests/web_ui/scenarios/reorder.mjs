// The queue is reordered by mouse and by keys, with undo.
export default async ({ fake, page, open, until, assert }) => {
  await open();
  const order = async () =>
    await page
      .getByRole('table', { name: 'Queue' })
      .locator('tbody tr[data-id]')
      .evaluateAll((rows) => rows.map((row) => Number(row.dataset.id)));
  const row = (id) => page.getByRole('table', { name: 'Queue' }).locator(`[data-id="${id}"]`);
  const before = await order();
  assert.deepEqual(before.slice(0, 4), [21, 22, 24, 25]);
  await page.evaluate(() => scrollTo(0, 400));
  const grip = await row(25).locator('.handle').boundingBox();
  const target = await row(22).boundingBox();
  await page.mouse.move(grip.x + 5, grip.y + 8);
  await page.mouse.down();
  await page.mouse.move(target.x + 20, target.y + 20, { steps: 6 });
  assert.equal(await page.locator('.drop-above').count(), 1);
  await page.mouse.up();
  await until(async () => (await order()).slice(0, 4).join() === '21,25,22,24');
  await page.waitForSelector('.toast >> text=Job 25 moved');
  await page.locator('.toast >> text=Undo').click();
  await until(async () => (await order()).join() === before.join());

  await row(24).focus();
  await page.keyboard.press('Shift+K');
  await until(async () => (await order()).slice(0, 3).join() === '21,24,22');
  assert.equal(
    await page.evaluate(() => document.activeElement.dataset.id),
    '24',
    'the focus stays with the job',
  );
  await page.keyboard.press('Shift+T');
  await until(async () => (await order())[0] === 24);

  // Jobs that are held, or wait for another job or a start time, cannot be moved.
  const ranks = () => [...fake.jobs.values()].map((one) => one.priority).join();
  const ranked = ranks();
  for (const id of [23, 26, 28]) {
    assert.equal(await row(id).locator('.handle').count(), 0, `job ${id}`);
    await row(id).focus();
    await page.keyboard.press('Shift+K');
    await page.waitForSelector(`.toast >> text=Job ${id} cannot be moved`);
  }
  const last = (await order()).indexOf(28) - 1;
  await row((await order())[last]).focus();
  await page.keyboard.press('Shift+J');
  assert.equal(ranks(), ranked, 'no other priority changed');
};
