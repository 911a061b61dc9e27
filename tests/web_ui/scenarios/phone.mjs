// On a phone: wait reasons, GPUs of running jobs, and selecting several jobs.
export const options = { viewport: { width: 390, height: 500 }, hasTouch: true, isMobile: true };

export default async ({ fake, page, open, until, assert }) => {
  Object.assign(fake.gpus[0], {
    memory_bytes: null,
    memory_used_bytes: null,
    utilisation_percent: null,
    power_watts: null,
    temperature_celsius: null,
    slots: 3,
  });
  Object.assign(fake.gpus[1], {
    model: 'NVIDIA H200 NVL 141GB HBM3e',
    state: 'in quarantine: Xid 79',
    simulated: true,
    slots: 4,
  });
  await open();
  const covered = await page.locator('.gpu > *').evaluateAll((parts) =>
    parts.filter((part) => {
      const before = part.previousElementSibling?.getBoundingClientRect();
      const isShown = part.getClientRects().length > 0; // a card without jobs has no list
      return before && isShown && part.getBoundingClientRect().top < before.bottom - 1;
    }),
  );
  assert.equal(covered.length, 0, 'a part of a GPU card covers the one above it');
  assert.match(await page.locator('.gpu').nth(0).innerText(), /1 of 3 slots in use/);
  // A table far below the visible area is not taller than its rows.
  const tall = await page
    .getByRole('table', { name: 'Recent jobs' })
    .evaluate((table) => [table.offsetHeight, 58 * 14]);
  assert.ok(tall[0] <= tall[1] + 60, `${tall}`);
  await page.locator('[aria-label="Queue"] tbody tr[data-id]').first().scrollIntoViewIfNeeded();
  assert.match(
    await page.getByRole('table', { name: 'Running jobs' }).locator('[data-id="15"]').innerText(),
    /GPU 0/,
  );
  assert.match(
    await page
      .getByRole('table', { name: 'Queue' })
      .locator('[data-id="25"] .why-text')
      .innerText(),
    /^behind 3 jobs · GPU 5 reserved for 22/,
  );
  for (const id of [21, 22])
    await page.getByRole('table', { name: 'Queue' }).locator(`[data-id="${id}"] .pick label`).tap();
  await page.waitForSelector('.bulk >> text=2 jobs selected');
  await page.locator('.bulk >> text=Hold').tap();
  await until(() => [21, 22].every((id) => fake.jobs.get(id).state === 'held'));
  await open('/sweeps/brave-otter');
  await until(async () =>
    /val_loss=0\.\d+\s+acc=/.test(
      await page
        .getByRole('table', { name: 'Trials' })
        .innerText()
        .catch(() => ''),
    ),
  );

  // The filters are collapsed; the second line of a row has GPU, duration and time.
  await open('/history?state=failed');
  const jobs = page.getByRole('table', { name: 'Jobs' });
  await until(async () => (await jobs.locator('tr[data-id]').count()) === 2);
  assert.match(
    await jobs.locator('[data-id="9"]').innerText(),
    /out of GPU memory\s+1 GPU\s+50m21s\s+2h ago/,
  );
  const lines = await jobs
    .locator('[data-id="9"] .p-meta')
    .evaluateAll((all) => all.map((one) => Math.round(one.getBoundingClientRect().bottom)));
  assert.equal(new Set(lines).size, 1, `${lines}`);
  assert.equal(await page.locator('.filters').count(), 0);
  await page.locator('button:has-text("Filters (1)")').tap();
  await page.selectOption('.filters select', 'done');
  await page.locator('text=Clear filters').tap();
  await page.waitForSelector('text=Clear filters', { state: 'detached' });
};
