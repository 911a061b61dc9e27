// Going back restores scroll position and focus; a new screen starts with the focus on its heading.
export const jobs = 2000;

export default async ({ fake, page, open, until, assert }) => {
  await open('/history');
  await page.waitForSelector('tbody tr[data-id="2000"]');
  assert.equal(await page.evaluate(() => document.activeElement.tagName), 'H1');
  await until(async () => {
    await page.evaluate(() => scrollTo(0, (2000 - 1500) * 32)); // as far as rows are loaded
    return page.locator('tbody tr[data-id="1500"]').count();
  });
  const before = await page.evaluate(() => scrollY);
  await page.locator('tbody tr[data-id="1498"] a').first().click();
  await page.waitForSelector('.crumbs');
  await until(
    () => page.evaluate(() => document.activeElement.tagName === 'H1' && scrollY === 0),
    'the heading of the job has the focus',
  );
  await page.locator('.crumbs >> text=Jobs').focus();
  fake.requests.length = 0;
  await page.goBack();
  await until(
    () => page.evaluate((y) => Math.abs(scrollY - y) < 3, before),
    'the scroll position is restored',
  );
  await until(
    () => page.evaluate(() => document.activeElement.dataset.id === '1498'),
    'the opened row has the focus',
  );
  assert.ok(
    fake.requests.filter((one) => one === 'GET /api/jobs').length <= 2,
    'the list is not loaded again from the top',
  );
  await page.goForward();
  await page.waitForSelector('.crumbs');

  // The header checkbox selects the loaded rows; a button selects all matching jobs.
  await open('/history?state=done');
  await page.waitForSelector('thead .pick');
  await page.waitForSelector('.more >> text=loaded');
  await page.locator('thead .pick label').click();
  await page.waitForSelector('.bulk >> text=200 jobs selected');
  await page.click('.bulk >> text=Select all matching jobs');
  const done = [...fake.jobs.values()].filter((one) => one.state === 'done').length;
  await page.waitForSelector(`.bulk >> text=${done} jobs selected`);
  await page.locator('thead .pick label').click();
  await page.waitForSelector('.bulk', { state: 'detached' });
};
