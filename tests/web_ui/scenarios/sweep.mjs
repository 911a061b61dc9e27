// A sweep offers only actions that have an effect.
export default async ({ fake, page, open, until, assert }) => {
  const { rows } = fake.sweeps.get('brave-otter');
  const set = (state, other) => rows.forEach((row) => row.state === state && (row.state = other));
  set('queued', 'done');
  await open('/sweeps/brave-otter');
  await page.waitForSelector('.sweep-finished');
  const buttons = () => page.locator('.actions > button').allInnerTexts();
  assert.deepEqual(
    await buttons(),
    ['Extend…', 'Rerun failed'],
    'no trial is missing, so there is nothing to resume',
  );
  await page.waitForSelector(
    '.importance >> text=lr explains most of the ranking by val_loss (0.71 of 1)',
  );
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
};
