// Changes appear without a reload; a hidden tab closes its stream and later resumes it.
export default async ({ fake, page, open, until, assert }) => {
  await open();
  await until(() => fake.streams.size === 1);
  const queue = page.getByRole('table', { name: 'Queue' });
  await queue.locator('[data-id="21"]').waitFor();
  fake.change(21, { state: 'running', started_at: new Date().toISOString(), why: null });
  await page.getByRole('table', { name: 'Running jobs' }).locator('[data-id="21"]').waitFor();
  await queue.locator('[data-id="21"]').waitFor({ state: 'detached' });
  fake.change(21, { state: 'failed', exit_code: 3, ended_at: new Date().toISOString() });
  await page
    .getByRole('table', { name: 'Recent jobs' })
    .locator('[data-id="21"] >> text=exit 3')
    .waitFor();
  const id = fake.add({ command: 'echo brand new' });
  await queue.locator(`[data-id="${id}"]`).waitFor();

  const hide = (hidden) =>
    page.evaluate((is) => {
      Object.defineProperty(document, 'hidden', { value: is, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
  await hide(true);
  await until(() => fake.streams.size === 0);
  const requests = fake.requests.filter((one) => one === 'GET /api/overview').length;
  const late = fake.add({ command: 'echo while you were away' });
  await hide(false);
  await queue.locator(`[data-id="${late}"]`).waitFor();
  assert.equal(
    fake.requests.filter((one) => one === 'GET /api/overview').length,
    requests,
    'resumed by event id, not fetched again',
  );

  // Events that the server no longer has are replaced by a full fetch.
  await hide(true);
  await until(() => fake.streams.size === 0);
  const lost = fake.add({ command: 'echo forgotten' });
  fake.ring = [];
  await hide(false);
  await queue.locator(`[data-id="${lost}"]`).waitFor();
};
