// Jobs of backends: live changes, a backend that was removed, and a web UI without backends.
import { backend } from '../data.mjs';

export default async ({ fake, page, open, until, assert }) => {
  // Without a backend, nothing mentions one.
  await open();
  assert.equal(await page.locator('.backends').count(), 0);
  await open('/history');
  await page.waitForSelector('.filters');
  assert.equal(await page.locator('.filters label', { hasText: 'Runs on' }).count(), 0);
  await open('/submit');
  await page.waitForSelector('textarea[name=command]');
  assert.equal(await page.locator('[name=on], [name=nodes], [name=option]').count(), 0);

  // A backend is added, and loses its connection.
  await page.click('nav >> text=Overview');
  fake.backends = [backend('lab')];
  fake.publish([], { backends: fake.backends });
  await page.waitForSelector('.backends >> text=1 node, 8 GPUs (3 in use)');
  fake.backends = [backend('lab', { problem: 'the controller does not answer' })];
  fake.publish([], { backends: fake.backends });
  await page.waitForSelector('.backends >> text=✕ the controller does not answer');
  await open('/gpus');
  await page.waitForSelector('section[aria-label="Backend lab"] >> text=seen 1m ago');
  await page.waitForSelector('.note >> text=the controller does not answer');

  // A job is submitted to the backend, waits there, starts and ends; its row moves along.
  await page.click('nav >> text=Overview');
  const why = 'it is in the queue of Slurm as job 12: Resources';
  const id = fake.add({ on: 'lab', gpus: 2, why: 'it is about to be submitted', name: 'far' });
  const row = (table) => page.getByRole('table', { name: table }).locator(`[data-id="${id}"]`);
  await row('Queue').waitFor();
  fake.change(id, { state: 'submitted', why, attempts: 1 });
  await until(async () => /lab \(2\)[\s\S]*Resources/.test(await row('Queue').innerText()));
  await row('Queue').locator('.s-submitted').waitFor();
  assert.equal(await row('Queue').locator('.grip button').count(), 0, 'it cannot be moved');
  await row('Queue').focus();
  await page.keyboard.press('h');
  await page.waitForSelector('.toast >> text=Only queued jobs can be held');
  await page.keyboard.press('p');
  await page.waitForSelector('.toast >> text=Only the priority of waiting jobs can be changed');
  fake.change(id, { state: 'running', node: 'n1', node_gpus: '4,5', why: undefined });
  await row('Running jobs').waitFor();
  assert.match(await row('Running jobs').innerText(), /lab n1:4,5/);
  assert.equal(await row('Queue').count(), 0);
  fake.change(id, { state: 'done', exit_code: 0, ended_at: new Date().toISOString() });
  await row('Recent jobs').waitFor();
  assert.match(await row('Recent jobs').innerText(), /lab n1:4,5/);

  // The reason of a submitted job is up to date on its own screen.
  const other = fake.add({ on: 'lab', state: 'submitted', why: 'it is being submitted' });
  await open(`/jobs/${other}`);
  await page.waitForSelector('.note >> text=it is being submitted');
  fake.jobs.get(other).why = why;
  fake.publish([], {
    waits: { [other]: { why, starts_in: null, ready: false } },
  });
  await page.waitForSelector(`.note >> text=${why}`);

  // A clone of a job on a removed backend names it, and the error is below the field.
  fake.backends = [];
  fake.publish([], { backends: [] });
  await open(`/submit?from=${other}`);
  await until(async () => (await page.inputValue('select[name=on]')) === 'lab');
  await page.waitForSelector('.field:has(select[name=on]) >> text=there is no backend `lab`');
  await page.selectOption('select[name=on]', 'local');
  await page.waitForSelector('.preview li');

  // With a default backend, forms start with it; this host has to be chosen.
  fake.backends = [backend('lab')];
  fake.defaultBackend = 'lab';
  await page.reload();
  await open('/submit');
  await page.fill('textarea[name=command]', 'python train.py');
  assert.equal(await page.inputValue('select[name=on]'), 'lab');
  await page.fill('input[name=nodes]', '2');
  await until(() => fake.posted.nodes === 2 && fake.posted.on === undefined);
  await page.selectOption('select[name=on]', 'local');
  await until(() => fake.posted.on === 'local' && fake.posted.nodes === undefined);
};
