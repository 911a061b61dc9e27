// A sweep offers only actions that have an effect, and its charts show the same trials.
export default async ({ fake, page, open, until, assert }) => {
  const { rows } = fake.sweeps.get('brave-otter');
  const set = (state, other) => rows.forEach((row) => row.state === state && (row.state = other));
  set('queued', 'done');
  await open('/sweeps/brave-otter');
  await page.waitForSelector('.sweep-finished');
  const buttons = () => page.locator('.actions button').allInnerTexts();
  assert.deepEqual(
    await buttons(),
    ['Rerun failed', 'Extend…'],
    'no trial is missing, so there is nothing to resume',
  );
  await page.waitForSelector('.importance >> text=71%');
  for (const row of rows.slice(0, 2)) row.state = 'cancelled';
  fake.publish([]);
  await page.click('text=Run 2 missing trials');
  await page.waitForSelector('.toast >> text=resumed: 2 trials queued');
  await page.waitForSelector('.sweep-active');
  await page.click('text=Rerun failed');
  await page.waitForSelector('.toast >> text=1 failed trial of brave-otter submitted again');
  assert.equal(
    await page.locator('.toast').count(),
    1,
    'the newer message about the sweep replaces the older one',
  );

  // A range selected along an axis also filters the curves.
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
