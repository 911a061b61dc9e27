// Destructive actions need a confirmation; every action shows a message, with an undo button if possible.
export default async ({ fake, page, open, until, assert }) => {
  await open('/jobs/15');
  await page.click('button:has-text("Cancel…")');
  const dialog = page.locator('dialog[open]');
  await dialog.waitFor();
  assert.match(await dialog.innerText(), /Cancel job 15\?/);
  for (let i = 0; i < 5; i++) {
    await page.keyboard.press('Tab');
    const where = await page.evaluate(() =>
      document.activeElement === document.body
        ? 'out'
        : document.activeElement.closest('dialog')
          ? 'in'
          : 'under',
    );
    assert.notEqual(where, 'under', 'the focus stays inside the dialog');
  }
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  assert.equal(fake.jobs.get(15).state, 'running', 'Escape does not cancel the job');
  assert.equal(
    await page.evaluate(() => document.activeElement.textContent),
    'Cancel…',
    'the focus returns to the button',
  );
  await page.click('button:has-text("Cancel…")');
  await dialog.locator('button.danger').click();
  await page.waitForSelector('.toast >> text=Canceling job 15');
  await page.waitForSelector('.headline >> text=cancelled');
  assert.equal(await page.locator('.toasts').getAttribute('aria-live'), 'polite');

  await open('/jobs/21');
  await page.click('button:has-text("Hold")');
  await page.waitForSelector('.headline >> text=held');
  await page.click('.toast >> text=Undo');
  await page.waitForSelector('.headline >> text=queued');
  assert.equal(
    await page
      .locator('.toast')
      .allInnerTexts()
      .then((all) => all.filter((text) => text.includes('Job 21')).length),
    1,
    'the newer message replaces the older one',
  );
  assert.notEqual(
    await page.evaluate(() => document.activeElement.tagName),
    'BODY',
    'the focus is not lost',
  );
  await page.click('button:has-text("Priority…")');
  await page.fill('dialog input[name=value]', '7');
  await page.click('dialog button.primary');
  await until(() => fake.jobs.get(21).priority === 7);
  await page.locator('.toast:has-text("priority 7") >> text=Undo').click();
  await until(() => fake.jobs.get(21).priority === 0);

  await open('/jobs/1');
  await page.click('button:has-text("Rerun")');
  await page.click('.toast >> text=Open');
  await page.waitForSelector('text=Rerun of');
  // Unfinished jobs cannot be rerun; a rerun can be undone by key.
  await page.keyboard.press('r');
  await page.waitForSelector('.toast >> text=Only finished jobs can be rerun');
  await open('/jobs/1');
  await page.waitForSelector('h1:has-text("python train.py")');
  await page.keyboard.press('r');
  await page.waitForSelector('.toast >> text=Submitted again as job');
  const again = Math.max(...fake.jobs.keys());
  await page.keyboard.press('u');
  await until(() => fake.jobs.get(again).state === 'cancelled');

  // A message vanishes after some time, but not while the pointer is on it.
  const toast = page.locator('.toast:has-text("cancelled")');
  const keepMessages = (yes) =>
    page.evaluate((yes) => (document.adoptedStyleSheets[0].disabled = !yes), yes); // see run.mjs
  const playState = () => toast.evaluate((node) => getComputedStyle(node).animationPlayState);
  await toast.hover();
  await keepMessages(false);
  assert.equal(await playState(), 'paused');
  await page.mouse.move(0, 0);
  await toast.evaluate((node) => node.getAnimations().forEach((one) => one.finish()));
  await toast.waitFor({ state: 'detached' });
  await keepMessages(true);

  // GPUs and the daemon.
  await open('/gpus');
  await page.waitForSelector('.gpu-row:nth-of-type(1) .gpu-history >> text=reserved for job 25');
  await page.locator('.gpu').nth(0).locator('text=Drain').click();
  await until(() => fake.gpus[0].state === 'drained');
  await page.locator('.toast:has-text("GPU 0 drained") >> text=Undo').click();
  await until(() => fake.gpus[0].state === 'busy');
  await page.locator('.gpu').nth(0).locator('text=Slots').click();
  await page.fill('dialog input[name=value]', '99');
  await page.click('dialog button.primary');
  await page.waitForSelector('dialog[open] >> text=less than or equal to 64');
  await page.fill('dialog input[name=value]', '2');
  await page.click('dialog button.primary');
  await until(() => fake.gpus[0].slots === 2);
  await open('/');
  await page.evaluate(() => (location.hash = '#/'));
  await page.click('button:has-text("Drain…")');
  await page.click('dialog button:has-text("Drain")');
  await page.waitForSelector('.banner >> text=Draining');
  await page.click('.banner >> text=Resume');
  await page.waitForSelector('.banner', { state: 'detached' });

  // Many at once.
  const queue = page.getByRole('table', { name: 'Queue' });
  await queue.locator('[data-id="22"] .pick label').click();
  await queue.locator('[data-id="25"] .pick label').click({ modifiers: ['Shift'] });
  await page.locator('.bulk >> text=Cancel…').click();
  await page.locator('dialog button.danger').click();
  await until(() => [22, 24, 25].every((id) => fake.jobs.get(id).state === 'cancelled'));
};
