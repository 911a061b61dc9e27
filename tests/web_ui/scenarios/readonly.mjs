// A read-only web UI shows everything and offers no actions.
export default async ({ fake, page, assert }) => {
  fake.readOnly = true;
  await page.goto(fake.link);
  await page.waitForSelector('.gpu');
  assert.equal(await page.locator('nav >> text=Submit').count(), 0);
  assert.equal(await page.locator('.pick, .handle, button:has-text("Drain")').count(), 0);
  await page.waitForSelector('.status >> text=read-only');
  await page.evaluate(() => (location.hash = '#/jobs/15'));
  await page.waitForSelector('h1');
  assert.equal(await page.locator('.actions').count(), 0);
  await page.keyboard.press('?');
  const keys = await page.locator('dialog').innerText();
  assert.ok(keys.includes('find a job') && !/cancel|select|undo|submit/.test(keys), keys);
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  await page.keyboard.press('c');
  assert.equal(await page.locator('dialog').count(), 0);
};
