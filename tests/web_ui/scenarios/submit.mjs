// Submitting a job, a batch and a sweep with live previews, up to the results of the sweep.
export default async ({ fake, page, open, until, assert }) => {
  await open();
  await page.click('nav >> text=Submit');
  await page.fill('textarea[name=command]', 'python train.py --lr 0.1');
  await page.waitForSelector('.preview li >> text=python train.py --lr 0.1');
  assert.match(await page.locator('.preview-facts').innerText(), /in \/home\/ada[\s\S]*1 GPU/);
  await page.waitForSelector('text=Jobs get the environment of the');
  // An error is shown below its field and uses the field labels.
  await page.fill('input[name=gpus]', '9');
  await page.waitForSelector(
    '.field:has(input[name=gpus]) >> text=this host has 8 GPUs; use “GPUs” 8',
  );
  assert.equal(await page.getAttribute('input[name=gpus]', 'aria-invalid'), 'true');
  await page.fill('input[name=gpus]', '');
  await page.fill('input[name=time_limit]', 'never');
  await page.waitForSelector('.field:has(input[name=time_limit]) >> text=is not a duration');
  await page.fill('input[name=time_limit]', '');
  await page.fill('textarea[name=command]', 'python one.py');
  await page.fill('input[name=gpus]', '2');
  await page.fill('input[name=name]', 'solo');
  await page.click('text=More options');
  await page.fill('input[name=tags]', 'a, b');
  await page.click('button:has-text("Submit job")');
  await page.waitForSelector('h1:has-text("solo")');
  const made = [...fake.jobs.values()].at(-1);
  assert.deepEqual([made.command, made.gpus, made.tags], ['python one.py', 2, ['a', 'b']]);

  await open('/submit?kind=batch');
  await page.fill('textarea[name=text]', '# comment\npython a.py\npython b.py\n');
  await page.waitForSelector('button:has-text("Submit 2 jobs")');
  await page.fill(
    'textarea[name=text]',
    'x ;; x.out ;; echo 1 ;;; y ;; y.out ;; echo 2 ;;; z ;; z.out ;; echo 3',
  );
  // A request that is repeated after an unclear answer has the same key: nothing is queued twice.
  const keys = [];
  await page.route('**/api/batch', async (route) => {
    const sent = route.request();
    if (!sent.postDataJSON().dry_run) keys.push(sent.headers()['idempotency-key']);
    const error = { code: 'timed_out', message: 'still being processed' };
    if (keys.length === 1) await route.fulfill({ status: 504, json: { error } });
    else await route.continue();
  });
  await page.click('button:has-text("Submit 3 jobs")');
  await page.waitForSelector('text=still being processed');
  await page.click('button:has-text("Submit 3 jobs")');
  await page.waitForSelector('.toast >> text=3 jobs queued');
  assert.equal(keys[0], keys[1]);
  assert.ok(keys[0]);

  await open('/submit?kind=sweep');
  await page.fill('textarea[name=command]', 'python train.py --lr {lr} --seed {seed}');
  await page.fill('[aria-label="Values of lr"]', '1e-3,1e-4');
  await page.fill('[aria-label="Values of seed"]', 'range(3)');
  await page.waitForSelector('.preview li >> text=python train.py --lr 1e-4 --seed 2');
  await page.fill('input[name=metric]', 'val_loss');
  await page.click('button:has-text("Start sweep of 6 trials")');
  await page.waitForSelector('h1:has-text("calm-heron")');
  const table = page.getByRole('table', { name: 'Trials' });
  await table.locator('tbody tr[data-id]').first().waitFor();
  assert.equal(await table.locator('tbody tr[data-id]').count(), 6);
  await page.waitForSelector('.parallel canvas[role=img]');
  await page.waitForSelector('.plot canvas');
  assert.match(await page.locator('.best').innerText(), /val_loss = /);

  // The sort order is part of the address; stopping asks for confirmation and can be undone.
  await open('/sweeps/brave-otter');
  await table.locator('tbody tr[data-id]').first().waitFor();
  await table.locator('button:has-text("lr")').click();
  await until(() => page.url().endsWith('?sort=lr'));
  await until(async () =>
    (await table.locator('th[aria-sort=ascending]').innerText()).startsWith('lr'),
  );
  const canvas = await page.locator('.parallel canvas[role=img]').boundingBox();
  await page.mouse.move(canvas.x + 46, canvas.y + 40);
  await page.mouse.down();
  await page.mouse.move(canvas.x + 46, canvas.y + 120, { steps: 4 });
  await page.mouse.up();
  await until(async () => (await table.locator('tbody tr[data-id]').count()) < 24);
  await page.click('button:has-text("Stop…")');
  await page.click('dialog button.danger');
  await until(() => fake.sweeps.get('brave-otter').stopped !== null);
  await page.locator('.toast:has-text("stopped") >> text=Undo').click();
  await until(() => fake.sweeps.get('brave-otter').stopped === null);
};
