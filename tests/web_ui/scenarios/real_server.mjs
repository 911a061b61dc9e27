// With the real server and daemon: from an empty queue to a finished sweep with curves, mouse only.
import { spawnSync } from 'node:child_process';

const stoker = (...words) => {
  const done = spawnSync(process.env.STOKER_PYTHON, ['-m', 'stoker', ...words], {
    encoding: 'utf8',
  });
  if (done.status !== 0) throw new Error(`${words.join(' ')}: ${done.stderr}`);
  return done.stdout;
};
const listed = () => JSON.parse(stoker('ls', '--json')).jobs;

export default async ({ page, open, until, assert }) => {
  await open();
  assert.equal(new URL(page.url()).hash, '#/');
  await page.waitForSelector('text=No jobs yet');
  assert.equal(await page.locator('.gpu').count(), 2);

  // Submit a job and watch its log grow.
  await page.click('text=Submit a job');
  await page.fill(
    'textarea[name=command]',
    'for i in $(seq 1 400); do echo line $i; sleep 0.05; done',
  );
  await page.fill('input[name=name]', 'talker');
  await page.waitForSelector('.preview li');
  await page.click('button:has-text("Submit job")');
  await page.waitForSelector('h1:has-text("talker")');
  await page.waitForSelector('.headline >> text=running');
  await until(async () =>
    (
      await page
        .locator('.log')
        .innerText()
        .catch(() => '')
    ).includes('line 5'),
  );
  const seen = (await page.locator('.log').innerText()).split('\n').length;
  await until(async () => (await page.locator('.log').innerText()).split('\n').length > seen);
  await page.click('button:has-text("Cancel…")');
  await page.locator('dialog button.danger').click();
  await page.waitForSelector('.headline >> text=cancelled');
  assert.equal(listed().find((job) => job.name === 'talker').state, 'cancelled');

  // Reorder the queue.
  for (let i = 0; i < 2; i++) stoker('submit', '--name', `block${i}`, 'sleep 600');
  for (let i = 0; i < 4; i++) stoker('submit', '--name', `wait${i}`, 'sleep 0.1');
  await page.click('nav >> text=Overview');
  const queue = page.getByRole('table', { name: 'Queue' });
  const names = () => queue.locator('tbody tr[data-id] b').allInnerTexts();
  await until(async () => (await names()).join() === 'wait0,wait1,wait2,wait3');
  await page.evaluate(() => scrollTo(0, 200));
  const grip = await queue.locator('tbody tr[data-id]').nth(3).locator('.handle').boundingBox();
  const target = await queue.locator('tbody tr[data-id]').nth(1).boundingBox();
  await page.mouse.move(grip.x + 5, grip.y + 8);
  await page.mouse.down();
  await page.mouse.move(grip.x + 5, target.y + 16, { steps: 6 });
  await page.mouse.up();
  await until(async () => (await names()).join() === 'wait0,wait3,wait1,wait2');
  stoker('cancel', 'block0', 'block1');
  await page.getByRole('table', { name: 'Recent jobs' }).locator('text=wait2').first().waitFor();

  // A sweep, from the form to its results and curves.
  await page.click('nav >> text=Submit');
  await page.locator('.tabs button:has-text("Sweep")').click();
  await page.fill(
    'textarea[name=command]',
    'for s in 1 2 3 4 5; do echo "stoker: val_loss=0.{lr}$s step=$s"; sleep 0.02; done; : {seed}',
  );
  await page.fill('[aria-label="Values of lr"]', '1,2,3');
  await page.fill('[aria-label="Values of seed"]', 'range(2)');
  await page.fill('input[name=metric]', 'val_loss');
  await page.waitForSelector('.preview li >> nth=5');
  await page.click('button:has-text("Start sweep of 6 trials")');
  await page.waitForSelector('text=6 of 6 done');
  await page.waitForSelector('.parallel canvas[role=img]');
  await page.waitForSelector('.plot canvas');
  assert.match(await page.locator('.best').innerText(), /val_loss = 0\.1\d/);
  const table = page.getByRole('table', { name: 'Trials' });
  assert.equal(await table.locator('tbody tr[data-id]').count(), 6);

  // The web UI and the command line show the same states.
  await page.click('nav >> text=History');
  const known = listed();
  await until(async () => {
    const rows = await page
      .locator('tbody tr[data-id]')
      .evaluateAll((all) =>
        all.map(
          (row) => `${row.dataset.id} ${row.querySelector('.state').textContent.replace(/^./, '')}`,
        ),
      );
    return known.every((job) => rows.includes(`${job.id} ${job.state}`));
  });

  // The server stops and restarts on the same port.
  stoker('web', 'stop');
  await page.waitForSelector('.banner.bad');
  stoker('web', '--port', new URL(page.url()).port);
  await page.click('nav >> text=Overview');
  await page.waitForSelector('.banner.bad', { state: 'detached' });
  stoker('submit', '--name', 'afterwards', 'true');
  await page
    .getByRole('table', { name: 'Recent jobs' })
    .locator('text=afterwards')
    .first()
    .waitFor();
};
