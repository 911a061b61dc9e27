// Tables of jobs and trials: filter with completion, errors at their place, order, columns, groups of
// failures, exports, and a link that shows the same table. Everything works by keyboard.
const EVIL = '<img src=x onerror="window.pwned=1">';

export default async ({ fake, page, open, until, assert, newContext, link }) => {
  const failed = [];
  for (const one of fake.jobs.values())
    if (one.state === 'done' && failed.length < 5) {
      Object.assign(one, { state: 'failed', cause: 'start_failed', detail: EVIL });
      failed.push(one.id);
    }
  await open('/history');
  await page.waitForSelector('tbody tr[data-id]');
  const ids = async () =>
    (
      await page.locator('tbody tr[data-id]').evaluateAll((rows) => rows.map((r) => r.dataset.id))
    ).map(Number);

  // One row for failures that are alike; their text is not markup.
  const group = page.locator('.failure-groups li').first();
  await group.getByText('5 failed alike').waitFor();
  assert.ok((await group.innerText()).includes(EVIL));
  await group.getByText('Show only these').click();
  await until(async () => (await ids()).length === 5);
  assert.deepEqual((await ids()).sort(), failed.sort());
  const filter = page.getByRole('combobox', { name: 'Filter' });
  assert.match(await filter.inputValue(), /^state == 'failed' and result == /);
  await group.getByText('Show all').click();
  await until(async () => (await ids()).length > 5);
  assert.equal(await filter.inputValue(), '');

  // Completion by keyboard: `f` focuses the filter, arrows choose, Enter accepts.
  await page.locator('h1').click();
  await page.keyboard.press('f');
  await page.keyboard.type('sta');
  await page.waitForSelector('[role=option]');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await until(async () => (await filter.inputValue()) === 'state ');
  await page.keyboard.type("== 'fai");
  await page.getByRole('option', { name: "'failed'" }).waitFor();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await until(async () => (await filter.inputValue()).startsWith("state == 'failed'"));
  await page.keyboard.press('Escape');
  await until(async () => {
    const states = await page.locator('tbody tr[data-id] .state').allInnerTexts();
    return states.length > 0 && states.every((state) => state.trim().endsWith('failed'));
  });

  // An error is shown at its place, and the rows stay.
  await filter.fill("state == 'failed' and stat == 1");
  await page.locator('.filter-error mark', { hasText: 'stat' }).waitFor();
  assert.match(await page.locator('.filter-error').innerText(), /unknown column `stat`/);
  assert.ok((await ids()).length > 0);
  await filter.fill('');

  // A heading sorts by its column, on the server; the third click restores the default order.
  const heading = (name) => page.getByRole('columnheader', { name }).getByRole('button');
  await heading('State').focus();
  await page.keyboard.press('Enter');
  await until(() => page.locator('th[aria-sort=ascending]', { hasText: 'State' }).count());
  await until(async () => {
    const texts = await page.locator('tbody tr[data-id] .state').allInnerTexts();
    const states = texts.map((text) => /\w+$/.exec(text.trim())[0]); // after its symbol
    return new Set(states).size > 2 && states.join() === [...states].sort().join();
  });
  await heading('State').click();
  await heading('State').click();
  await until(async () => !(await page.evaluate(() => location.hash)).includes('sort'));

  // Columns are chosen by keyboard, and are part of the address.
  await page.getByRole('button', { name: 'Columns…' }).click();
  await page.getByRole('searchbox', { name: 'Find a column' }).fill('loss');
  await page.getByRole('checkbox', { name: 'metric.loss' }).focus();
  await page.keyboard.press('Space');
  await page.getByRole('button', { name: 'Move metric.loss left' }).click();
  await page.getByRole('button', { name: 'Show', exact: true }).click();
  await page.getByRole('columnheader', { name: 'loss' }).waitFor();
  await until(async () => (await page.evaluate(() => location.hash)).includes('col=metric.loss'));
  await heading('loss').click();
  await until(async () => {
    const cells = await page.locator('tbody tr[data-id] td:nth-last-child(2)').allInnerTexts();
    const values = cells.map((text) => text.replace(/^loss=/, '')).filter((text) => text !== '–');
    return (
      values.length > 3 && values.every((v, i) => i === 0 || Number(v) >= Number(values[i - 1]))
    );
  });

  // Exports have the filter, the order and the columns.
  await filter.fill("state == 'done'");
  await until(async () => (await page.evaluate(() => location.hash)).includes('where='));
  await page.locator('.export-menu summary').focus();
  await page.keyboard.press('Enter');
  await page.getByText('pip install pyarrow').waitFor();
  const address = new URL(
    await page.getByRole('link', { name: 'CSV' }).getAttribute('href'),
    'http://x',
  );
  assert.equal(address.pathname, '/api/history/export');
  assert.equal(address.searchParams.get('where'), "state == 'done'");
  assert.equal(address.searchParams.get('sort'), 'metric.loss');
  assert.ok(address.searchParams.getAll('column').includes('metric.loss'));
  await page.keyboard.press('Escape');

  // The link shows the same table in another browser, and the columns are remembered in this one.
  await page.evaluate(() => {
    Object.defineProperty(navigator, 'clipboard', {
      value: { writeText: async (text) => void (window.copied = text) },
    });
  });
  await page.getByRole('button', { name: 'Copy link' }).click();
  const copied = await page.evaluate(() => window.copied);
  const shown = await ids();
  const other = await (await newContext({ viewport: { width: 390, height: 844 } })).newPage();
  await other.goto(link);
  await other.waitForSelector('main .gpu');
  await other.goto(copied);
  await until(async () => {
    const rows = other.locator('tbody tr[data-id]');
    return (
      (await rows.count()) > 0 && Number(await rows.first().getAttribute('data-id')) === shown[0]
    );
  });
  assert.match(await other.locator('tbody tr[data-id]').first().innerText(), /loss=/);
  assert.ok(
    await other.evaluate(() => document.documentElement.scrollWidth <= innerWidth),
    'a phone needs no scrolling sideways',
  );
  await page.evaluate(() => (location.hash = '#/history'));
  await page.getByRole('columnheader', { name: 'loss' }).waitFor();

  // The table of trials has the same filter, columns and export.
  await open('/sweeps/brave-otter');
  await page.waitForSelector('tbody tr[data-id]');
  await filter.fill("opt == 'sgd' and val_loss < 0.6");
  await until(async () => {
    const trials = fake.sweeps
      .get('brave-otter')
      .rows.filter((row) => row.opt === 'sgd' && row.val_loss !== null && row.val_loss < 0.6);
    return (await ids()).length === trials.length;
  });
  await filter.fill('val_loss <');
  await page.waitForSelector('[role=option]');
  await page.keyboard.press('Enter'); // no suggestion is chosen: the filter is applied
  await page.getByText('it ends too early').waitFor();
  await page.locator('.export-menu summary').click();
  const trials = await page.getByRole('link', { name: 'JSON' }).getAttribute('href');
  assert.match(trials, /^\/api\/sweeps\/brave-otter\/export\?/);
  assert.equal(await page.evaluate(() => window.pwned), undefined);
};
