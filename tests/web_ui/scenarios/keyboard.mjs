// Everything works without a mouse.
export default async ({ fake, page, open, until, assert }) => {
  await open();
  await page.keyboard.press('?');
  await page.waitForSelector('dialog >> text=Keyboard shortcuts');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });

  const focused = () => page.evaluate(() => document.activeElement?.dataset?.id);
  await page.keyboard.press('j');
  await until(async () => (await focused()) === '15');
  await page.keyboard.press('j');
  await page.keyboard.press('k');
  assert.equal(await focused(), '15');
  const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(ring, 'solid', 'the focus is visible');
  for (let i = 0; i < 6; i++) await page.keyboard.press('j');
  assert.equal(await focused(), '21', 'the focus moves on to the next table');
  await page.keyboard.press('h');
  await until(() => fake.jobs.get(21).state === 'held');
  await page.keyboard.press('Enter');
  await page.waitForSelector('button >> text=Cancel…');
  assert.match(page.url(), /#\/jobs\/\d+$/);
  await page.keyboard.press('c');
  await page.waitForSelector('dialog[open]');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.headline >> text=cancelled');
  for (const [key, hash] of [
    ['h', '#/history'],
    ['s', '#/sweeps'],
    ['g', '#/gpus'],
    ['n', '#/submit'],
    ['o', '#/'],
  ]) {
    await page.evaluate(() => document.activeElement?.blur());
    await page.keyboard.press('g');
    await page.keyboard.press(key);
    await until(() => new URL(page.url()).hash === hash, hash);
  }
  await page.keyboard.press('/');
  await page.keyboard.type('prepare');
  await page.keyboard.press('Enter');
  await until(() => page.url().endsWith('#/history?q=prepare'));
  await until(async () => (await page.locator('tbody tr[data-id]').count()) === 6);
  await page.keyboard.press('/');
  await page.keyboard.type('17');
  await page.keyboard.press('Enter');
  await page.waitForSelector('h1:has-text("eval nightly")');
  const before = await page.evaluate(() => document.documentElement.dataset.theme);
  await page.keyboard.press('t');
  assert.notEqual(await page.evaluate(() => document.documentElement.dataset.theme), before);
};
