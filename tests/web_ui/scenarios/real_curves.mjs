// Curves and comparisons of a sweep on the real server: 40 trials with 50 steps, see tests/finished_sweep.py.
export default async ({ page, open, until, assert }) => {
  await open('/sweeps/big');
  await until(async () => (await page.locator('.legend li').count()) === 40);
  assert.match(await page.locator('.curve-tools').innerText(), /1 of 2/);
  await page.locator('.plot').focus();
  await page.keyboard.press('End');
  await until(async () => /^step 49\n/.test(await page.locator('.tip').innerText()));
  await page.locator('input[type=range]').fill('0.8');
  await page.click('.curve-tools >> text=Time');
  await page.selectOption('[aria-label="Group by"]', 'seed');
  await until(async () => (await page.locator('.legend li').count()) === 10);
  assert.match(await page.locator('.legend').innerText(), /seed=3 0\.\d+ ± 0\.\d+ \(4 runs\)/);

  await page.locator('table[aria-label=Trials] tbody .pick input').nth(0).click();
  await page.locator('table[aria-label=Trials] tbody .pick input').nth(1).click();
  await page.click('.selection-bar >> text=Compare');
  await page.waitForSelector('.compare .best');
  await until(async () => (await page.locator('.legend li').count()) === 2);
  await page.waitForSelector('section[aria-label=Code]');
  await page.fill('.add-run input', 'big/4711');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.failed >> text=sweep big has no trial 4711');
};
