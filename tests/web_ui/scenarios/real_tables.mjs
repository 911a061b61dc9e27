// Filters, completion, groups of failures and exports of the real server.
export default async ({ page, open, until, assert }) => {
  await open('/history');
  await page.waitForSelector('tbody tr[data-id]');
  const ids = async () =>
    await page.locator('tbody tr[data-id]').evaluateAll((rows) => rows.map((r) => r.dataset.id));
  const filter = page.getByRole('combobox', { name: 'Filter' });
  const group = page.locator('.failure-groups li');
  await group.getByText('2 failed alike: exit 3').waitFor();

  await filter.pressSequentially('metric.lo');
  await page.getByRole('option', { name: 'metric.loss' }).waitFor();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Tab');
  await page.keyboard.type('> 1');
  await until(async () => (await ids()).join() === '5,4,3,2');
  await page.getByRole('columnheader', { name: 'Job' }).getByRole('button').click();
  await page.getByRole('columnheader', { name: 'Job' }).getByRole('button').click();
  await until(async () => (await ids()).join() === '2,3,4,5');
  await group.getByText('Show only these').click();
  await until(async () => (await ids()).join() === '2,3');

  await page.locator('.export-menu summary').click();
  const href = await page.getByRole('link', { name: 'CSV' }).getAttribute('href');
  const csv = await page.evaluate(async (path) => (await fetch(path)).text(), href);
  assert.deepEqual(
    csv
      .trim()
      .split('\r\n')
      .map((line) => line.split(',')[0]),
    ['id', '2', '3'],
  );

  await filter.fill("state = 'failed'");
  await page.keyboard.press('Enter');
  await page.locator('.filter-error mark', { hasText: '=' }).waitFor();
  await page.getByText('compare with ==').waitFor();

  // The screen of a sweep has the same tools for its trials.
  await open('/sweeps/s?where=lr%20%3E%3D%204&sort=-lr&col=lr&col=result&col=state');
  await until(async () => (await ids()).join() === '5,4');
  await page.getByRole('columnheader', { name: 'result' }).waitFor();
  assert.match(await page.locator('tbody tr[data-id="4"]').innerText(), /out of GPU memory/);
};
