// Every screen once: what it shows, the keys that lead to it, and the details of waiting and running jobs.
// The suite runs it in Chromium and in Firefox.
import { Fake } from '../fake.mjs';

export default async ({ fake, newContext, page, open, until, assert }) => {
  fake.gpus[5].reserved_for = 25;
  await open();
  const text = (selector) => page.locator(selector).first().innerText();
  const press = async (...keys) => {
    for (const key of keys) await page.keyboard.press(key);
  };
  const heading = (name) => page.waitForSelector(`h1:has-text("${name}")`);
  const dialog = page.locator('dialog[open]');
  const closeDialog = async () => {
    await press('Escape');
    await dialog.waitFor({ state: 'detached' });
  };

  // Running jobs: progress, newest metric, likely end, GPU memory against its request, warnings.
  const run = (id) => page.locator(`tr[data-id="${id}"]`);
  assert.match(
    await run(16).innerText(),
    /step 140\/1000 \(14%\)[\s\S]*val_loss 0\.316[\s\S]*~44m\d\ds left/,
  );
  assert.equal(await run(16).getByRole('progressbar').getAttribute('aria-valuenow'), '14');
  assert.match(await run(15).innerText(), /at most 4h00m left|at most 3h59m left/);
  assert.match(await run(18).locator('.run-warning').getAttribute('title'), /at 0% for the last/);
  assert.match(await page.locator('.gpu').nth(5).innerText(), /reserved for 25/);
  fake.publish([], { runs: { 16: { ...runOf(fake, 16), percent: 80, metric: 'val_loss 0.111' } } });
  await until(async () => /val_loss 0\.111/.test(await run(16).innerText()), 'a newer metric');

  // Waiting jobs: few words in the list, all of them on demand, and changes that ask first.
  assert.match(await run(25).innerText(), /behind 3 jobs · GPU 5 reserved for 22/);
  await run(26).focus();
  await press('w');
  await dialog.getByText('must succeed first').waitFor();
  await closeDialog();
  await run(25).focus();
  await press('w');
  await dialog.getByText('GPU 5 is kept for job 22').waitFor();
  await dialog.getByRole('button', { name: 'Start now with a time limit of at most 19m' }).click();
  assert.match(await dialog.innerText(), /stoker edit 25 --time-limit 19m/);
  assert.equal(fake.patched, undefined);
  await dialog.getByRole('button', { name: 'Change job 25' }).click();
  await page.waitForSelector('text=Job 25 changed');
  assert.deepEqual(fake.patched, { id: 25, fields: { time_limit: 1140 } });

  // The same on the screen of a job.
  await run(18).focus();
  await press('Enter');
  await page.waitForSelector('section[aria-label="Run"]');
  assert.match(
    await text('section[aria-label="Run"]'),
    /40%[\s\S]*estimated from earlier runs[\s\S]*val_loss 0\.318[\s\S]*its GPU was at 0%/,
  );
  await press('l');
  await page.waitForSelector('.log');
  await page.evaluate(() => (location.hash = '#/jobs/21'));
  await page.getByRole('button', { name: 'Start now with a time limit' }).waitFor();

  // The other screens, by keys.
  await press('g', 's');
  await heading('Sweeps');
  await page.click('text=brave-otter');
  await heading('brave-otter');
  await press('g', 'h');
  await heading('History');
  await run(30).waitFor();
  await press('g', 'g');
  await heading('GPUs');
  await page.waitForSelector('.gpu-row');
  await press('g', 'n');
  await page.waitForSelector('input[name=cwd]');
  await page.waitForSelector('#recent-folders option[value="/home/ada/llm"]', {
    state: 'attached',
  });
  assert.equal(await page.getAttribute('input[name=cwd]', 'list'), 'recent-folders');
  await page.fill('textarea[name=command]', 'python train.py');
  await page.keyboard.press('Control+Enter');
  await until(() => fake.posted?.command === 'python train.py', 'the submitted job');
  await page.evaluate(() => document.activeElement.blur());
  await press('g', 'o', '?');
  await dialog.getByText('why a job waits, and what would start it').waitFor();
  await closeDialog();
  await press('t');

  // Empty screens say what to type.
  const empty = await new Fake(0).listen();
  const first = await (await newContext()).newPage();
  await first.goto(empty.link);
  const command = first.locator('.copyable code').first();
  await command.waitFor();
  assert.equal(await command.innerText(), 'stoker submit python train.py');
  await first.locator('.copyable button').first().click();
  await until(async () =>
    /copied|selected/.test(await first.locator('.copyable').first().innerText()),
  );
  for (const screen of ['sweeps', 'history']) {
    await first.evaluate((name) => (location.hash = `#/${name}`), screen);
    await first.waitForSelector(
      `.first-use code:has-text("stoker ${screen === 'sweeps' ? 'sweep' : 'submit'}")`,
    );
  }
  await empty.close();
};

const runOf = (fake, id) => fake.withWait(fake.jobs.get(id)).run;
