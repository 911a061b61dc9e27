// A read-only web UI shows everything and offers no actions.
export default async ({ fake, page, settled, assert }) => {
  fake.readOnly = true;
  await page.goto(fake.link);
  await page.waitForSelector('.gpu');
  await settled(page);
  assert.equal(await page.locator('nav >> text=Submit').count(), 0);
  assert.equal(await page.locator('.handle, button:has-text("Drain")').count(), 0);
  // Rows can be selected to compare them; there are no other actions.
  await page.locator('tbody .pick input').first().click();
  await page.waitForSelector('.selection-bar >> text=Compare');
  assert.equal(await page.locator('.bulk').count(), 0);
  await page.waitForSelector('.status >> text=read-only');
  await page.evaluate(() => (location.hash = '#/jobs/15'));
  await page.waitForSelector('.actions');
  assert.deepEqual(await page.locator('.actions .button').allInnerTexts(), ['Compare']);
  await page.keyboard.press('?');
  const keys = await page.locator('dialog').innerText();
  assert.ok(keys.includes('find a job') && !/cancel|undo|submit/.test(keys), keys);
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  await page.keyboard.press('c');
  assert.equal(await page.locator('dialog').count(), 0);
};
