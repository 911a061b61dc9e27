// The overview: GPUs with their processes, running jobs, the queue with reasons, finished jobs.
export default async ({ fake, newContext, page, open, assert }) => {
  await open();
  assert.equal(await page.locator('.gpu').count(), 8);
  assert.match(
    await page.locator('.gpu').nth(6).innerText(),
    /taken[\s\S]*88\.0[\s\S]*grace · pid 41213/,
  );
  assert.match(await page.locator('.gpu').nth(7).innerText(), /drained/);
  assert.match(
    await page.locator('.gpu').nth(0).innerText(),
    /690 W[\s\S]*71 °C[\s\S]*resnet50-base/,
  );
  const running = page.getByRole('table', { name: 'Running jobs' });
  assert.equal(await running.locator('tbody tr[data-id]').count(), 6);
  const queue = page.getByRole('table', { name: 'Queue' });
  assert.match(await queue.innerText(), /behind 3 jobs · GPU 5 reserved for 22/);
  assert.match(await queue.innerText(), /~\d+m\d\ds/);
  assert.equal(
    await page.getByRole('table', { name: 'Recent jobs' }).getAttribute('aria-rowcount'),
    '15',
  );
  assert.match(await page.title(), /6 running, 10 queued/);
  assert.match(
    await page.locator('.page-head').innerText(),
    /Overview[\s\S]*6 running[\s\S]*10 waiting[\s\S]*2 of the last 14 failed/,
  );

  // A long queue does not hide finished jobs.
  for (let i = 0; i < 30; i++) fake.add({ command: `echo ${i}` });
  await page.waitForSelector('text=Show the next 24');
  assert.equal(await queue.locator('tbody tr[data-id="60"]').count(), 0);
  await page.click('text=Show the next 24');
  await queue.locator('tbody tr[data-id="60"]').scrollIntoViewIfNeeded();

  // Loading, empty and failed are shown differently.
  const slow = await (await newContext()).newPage();
  let answer;
  const isAllowed = new Promise((go) => (answer = go));
  await slow.route('**/api/overview', async (route) => {
    await isAllowed;
    await route.continue().catch(() => undefined);
  });
  await slow.goto(fake.link);
  await slow.waitForSelector('.loading');
  answer();
  await slow.waitForSelector('text=resnet50-base');
  assert.equal(await slow.locator('main .loading').count(), 0);

  const broken = await (await newContext()).newPage();
  await broken.route('**/api/overview', (route) =>
    route.fulfill({
      status: 500,
      contentType: 'application/json',
      body: '{"error":{"code":"internal","message":"the disk is full","hint":"make room"}}',
    }),
  );
  await broken.goto(fake.link);
  await broken.waitForSelector('main .failed >> text=the disk is full');

  fake.jobs.clear();
  const empty = await (await newContext()).newPage();
  await empty.goto(fake.link);
  await empty.waitForSelector('text=No jobs yet');
};
