// Layout: common elements have the same position on every screen, and edges are aligned.
export const options = { viewport: { width: 1920, height: 1080 } };

export default async ({ fake, page, open, until, assert }) => {
  await open();
  const boxes = (what) =>
    page.locator(what).evaluateAll((all) =>
      all.map((one) => {
        const { left, right, top, bottom } = one.getBoundingClientRect();
        return { left, right, top, bottom };
      }),
    );
  const lefts = async () => (await boxes('.top nav a')).map((one) => one.left);
  const before = await lefts();
  for (const place of ['Sweeps', 'History', 'GPUs', 'Submit', 'Overview']) {
    await page.click(`nav >> text=${place}`);
    await page.waitForSelector(`nav a[aria-current] >> text=${place}`);
    assert.deepEqual(await lefts(), before, place);
  }

  // Rows of GPUs have equal length and the width of the tables below; the header is aligned with them.
  const [section] = await boxes('main section >> nth=0');
  const rowsOf = async (total) => {
    await until(async () => (await page.locator('.gpu').count()) === total);
    const gpuBoxes = await boxes('.gpu');
    assert.equal(Math.min(...gpuBoxes.map((one) => one.left)), section.left);
    assert.ok(
      Math.abs(Math.max(...gpuBoxes.map((one) => one.right)) - section.right) < 1,
      `${total} GPUs fill the row`,
    );
    return [...new Set(gpuBoxes.map((one) => one.top))].map(
      (top) => gpuBoxes.filter((one) => one.top === top).length,
    );
  };
  assert.deepEqual(await rowsOf(8), [4, 4]);
  const all = [...fake.gpus];
  for (const [total, rows] of [
    [6, [3, 3]],
    [4, [4]],
    [3, [3]],
    [1, [1]],
  ]) {
    fake.gpus = all.slice(-total);
    await page.reload();
    assert.deepEqual(await rowsOf(total), rows);
  }
  assert.ok(Math.abs((await boxes('.brand'))[0].left - section.left) < 2);
  assert.ok(Math.abs((await boxes('.top > button >> nth=-1'))[0].right - section.right) < 2);
  assert.equal(
    await page.locator('.gpu ul').isVisible(),
    false,
    'a GPU without processes has no empty list',
  );

  await open('/history');
  await page.waitForSelector('[data-id="11"]');
  const fields = await boxes('.filters input, .filters select');
  assert.equal(
    new Set(fields.map((one) => `${one.top} ${one.bottom}`)).size,
    1,
    'all fields are on one line',
  );
  const table = (await boxes('main section'))[0].top;
  await page.selectOption('.filters select', 'cancelled');
  await page.waitForSelector('text=Clear filters');
  await page.waitForSelector('main section >> text=2 jobs');
  assert.equal((await boxes('main section'))[0].top, table, 'a filter does not move the table');
  // A job that its user cancelled is not shown as an error.
  const row = page.locator('[data-id="11"]');
  assert.match(await row.innerText(), /by the user/);
  assert.equal(await row.locator('.bad-ink').count(), 0);
  await row.focus();
  await page.keyboard.press('r');
  await page.waitForSelector('.toast');
  const submitted = (await boxes('[data-id="11"] td >> nth=-3'))[0];
  assert.ok(
    (await boxes('.toast'))[0].right < submitted.left,
    'messages do not cover the columns at the right',
  );
};
