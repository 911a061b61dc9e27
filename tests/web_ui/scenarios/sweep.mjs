// A sweep offers what would do something, and its charts speak of the same trials.
export default async ({ fake, page, open, until, assert }) => {
  const { rows } = fake.sweeps.get('brave-otter');
  const set = (state, other) => rows.forEach((row) => row.state === state && (row.state = other));
  set('queued', 'done');
  await open('/sweeps/brave-otter');
  await page.waitForSelector('.sweep-over');
  const buttons = () => page.locator('.actions button').allInnerTexts();
  assert.deepEqual(await buttons(), ['Run failed again', 'Extend…'], 'nothing is missing, so there is nothing to resume');
  await page.waitForSelector('.importance >> text=71%');
  for (const row of rows.slice(0, 2)) row.state = 'cancelled';
  fake.tell([]);
  await page.click('text=Run the 2 missing');
  await page.waitForSelector('.toast >> text=goes on: 2 trials queued');
  await page.waitForSelector('.sweep-active');
  await page.click('text=Run failed again');
  await page.waitForSelector('.toast >> text=1 failed trial of brave-otter queued again');
  assert.equal(await page.locator('.toast').count(), 1, 'the newer word about the sweep stands alone');

  // What is chosen along an axis is chosen in the curves too.
  const curves = page.getByRole('region', { name: 'Learning curves' });
  const note = () => curves.locator('header').innerText();
  await until(async () => /val_loss, \d+ trials/.test(await note()));
  const canvas = await page.locator('.parallel canvas').boundingBox();
  await page.mouse.move(canvas.x + 46, canvas.y + 40);
  await page.mouse.down();
  await page.mouse.move(canvas.x + 46, canvas.y + 90, { steps: 4 });
  await page.mouse.up();
  await until(async () => /\d+ of val_loss/.test(await note()));
  await page.click('section[aria-label=Parameters] >> text=Clear');
  await until(async () => !/ of val_loss/.test(await note()));
};
