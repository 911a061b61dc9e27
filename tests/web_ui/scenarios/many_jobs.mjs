// Ten thousand jobs: only few rows are rendered, and scrolling loads all of them.
export const jobs = 10_000;

export default async ({ fake, page, open, until, assert }) => {
  await open();
  await page.reload();
  await page.waitForSelector('[aria-label=Queue] tbody tr[data-id]');
  const paint = await page.evaluate(
    () => performance.getEntriesByName('first-contentful-paint')[0].startTime,
  );
  console.log(`first contentful paint ${paint.toFixed(0)} ms`);
  assert.match(
    await page.locator('section[aria-label=Queue]').innerText(),
    /3,800 more waiting jobs/,
  );

  await open('/history');
  await page.waitForSelector('tbody tr[data-id="10000"]');
  const frames = await page.evaluate(async () => {
    const times = [];
    let last = performance.now();
    for (let i = 0; document.querySelector('[data-id="1"]') === null; i++) {
      scrollBy(0, 4000);
      await new Promise((go) => requestAnimationFrame(go));
      times.push(performance.now() - last);
      last = performance.now();
      if (i % 3 === 0) await new Promise((go) => setTimeout(go, 30));
    }
    return times.sort((a, b) => a - b);
  });
  console.log(
    `frames while scrolling: median ${frames[Math.floor(frames.length / 2)].toFixed(0)} ms, worst ${frames.at(-1).toFixed(0)} ms`,
  );
  await until(() => page.locator('tbody tr[data-id="1"]').count());
  assert.ok(
    (await page.locator('tbody tr[data-id]').count()) < 100,
    'only rows near the visible area are rendered',
  );
  assert.match(await page.locator('.more').innerText(), /10,000 jobs/);

  // The stream does not report jobs outside the overview, so the visible rows are fetched again.
  fake.jobs.get(3).state = 'lost';
  fake.publish([]);
  await page.waitForSelector('tbody tr[data-id="3"] >> text=lost');

  await page.evaluate(() => (location.hash = '#/history?state=failed'));
  await until(async () => {
    const states = await page.locator('tbody tr[data-id] .state').allInnerTexts();
    return states.length > 5 && states.every((state) => state.trim().endsWith('failed'));
  });
};
