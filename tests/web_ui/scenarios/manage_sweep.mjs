// A finished sweep is cloned, extended, gets more values, and is removed; impossible actions say why.
export default async ({ fake, page, open, assert }) => {
  const sweep = fake.sweeps.get('brave-otter');
  for (const row of sweep.rows) row.state = 'done';
  await open('/sweeps/brave-otter');
  await page.waitForSelector('.sweep-finished');
  await page.click('.action-menu > summary');
  const menu = page.locator('.action-menu-body');
  assert.match(await menu.innerText(), /Add values\s+The sweep runs \d+ sampled trials/);
  assert.match(await menu.innerText(), /Rerun failed\s+No trial failed/);
  await page.keyboard.press('Escape');
  assert.equal(await menu.isVisible(), false);

  // Extend says how many trials the screen showed, so that a repeated request is refused.
  await page.click('text=Extend…');
  await page.fill('dialog input[name=value]', '5');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.toast >> text=5 trials added');
  const { action, trials, expected } = fake.posted;
  assert.deepEqual([action, trials, expected], ['extend', 5, sweep.rows.length]);

  // Values are added to a grid, after a preview of their trials.
  sweep.method = 'grid';
  fake.publish([]);
  await page.click('text=Add values…');
  const field = page.getByRole('textbox', { name: 'lr' });
  await field.fill('1,2');
  await page.waitForSelector('dialog >> text=Adds 2 trials:');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.toast >> text=2 trials added');
  assert.deepEqual(fake.posted.parameters, { lr: '1,2' });
  for (const row of sweep.rows) row.state = 'done';
  fake.publish([]);

  // One trial.
  await page.click('.action-menu > summary');
  await page.click('text=Add a trial…');
  for (const [name, text] of Object.entries({ lr: '0.5', opt: 'adam', wd: '0' }))
    await page.locator(`dialog input[name="value of ${name}"]`).fill(text);
  await page.click('dialog button.primary');
  await page.waitForSelector('.toast >> text=1 trial added');
  assert.equal(fake.posted.point, true);

  // The form of a clone has the definition of the original under another name.
  sweep.method = 'random';
  await page.click('text=Clone and edit');
  await page.waitForSelector('h1 >> text=Clone of sweep brave-otter');
  const value = (name) => page.locator(`[name=${name}]`).first().inputValue();
  assert.equal(await value('name'), 'brave-otter-2');
  assert.equal(await value('gpu_mem'), '20G');
  assert.equal(await value('tags'), 'night, a');
  assert.equal(await value('seed'), '7');
  await page.waitForSelector("text=Kept from it: wd is used only if opt == 'adam'");
  await page.getByRole('textbox', { name: 'Values of lr' }).fill('0.1,0.2');
  await page.click('button.primary >> text=Start sweep of 8 trials');
  await page.waitForSelector('h1 >> text=brave-otter-2');
  const sent = fake.posted;
  assert.deepEqual(
    [sent.based_on, sent.name, sent.parameters.lr, sent.options.gpus, sent.metric],
    ['brave-otter', 'brave-otter-2', '0.1,0.2', 2, 'val_loss:min'],
  );

  // Removing says what is removed, and does nothing without the answer.
  for (const row of sweep.rows) row.state = 'done';
  await open('/sweeps/brave-otter');
  await page.waitForSelector('.sweep-finished');
  await page.click('.action-menu > summary');
  await page.click('text=Remove…');
  await page.waitForSelector('dialog >> text=Its jobs with their logs, metrics and folders stay.');
  await page.keyboard.press('Escape');
  assert.ok(fake.sweeps.has('brave-otter'));
  await page.click('.action-menu > summary');
  await page.click('text=Remove…');
  await page.check('dialog input[type=checkbox]');
  await page.click('dialog button.danger');
  await page.waitForSelector('.toast >> text=Sweep brave-otter removed');
  assert.deepEqual([fake.posted.action, fake.posted.jobs], ['rm', true]);
  await page.waitForSelector('h1 >> text=Sweeps');
};
