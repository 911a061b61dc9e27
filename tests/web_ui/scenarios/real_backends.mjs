// Jobs and nodes of backends, from a real database; see test_with_server.py for its records.
export default async ({ page, open, until, assert }) => {
  await open();
  const lines = page.getByRole('list', { name: 'Backends' }).locator('li');
  assert.match(await lines.nth(0).innerText(), /far\s+ray[\s\S]*✕ cannot reach the head node/);
  assert.match(
    await lines.nth(1).innerText(),
    /lab\s+slurm[\s\S]*2 nodes, 16 GPUs \(11 in use\), 1 node not available/,
  );
  assert.match(await page.locator('.page-head').innerText(), /1 running\s+1 submitted\s+2 waiting/);
  const cells = async (table, id) =>
    page.getByRole('table', { name: table }).locator(`[data-id="${id}"]`).innerText();
  const idOf = async (table, text) =>
    page
      .getByRole('table', { name: table })
      .locator('tr[data-id]', { hasText: text })
      .getAttribute('data-id');
  const running = await idOf('Running jobs', 'resnet');
  assert.match(await cells('Running jobs', running), /lab n2:0,1/);
  const submitted = await idOf('Queue', 'big-run');
  assert.match(
    await cells('Queue', submitted),
    /lab \(2x4\)[\s\S]*in the queue of Slurm: Priority[\s\S]*submitted/,
  );
  assert.match(await cells('Queue', await idOf('Queue', 'soon')), /lab \(1\)/);
  assert.match(await cells('Recent jobs', await idOf('Recent jobs', 'short')), /lab n1:3/);

  // The job screens.
  await open(`/jobs/${running}`);
  await page.waitForSelector('dt:text-is("Runs on") + dd:text-is("lab, node n2, GPU 0,1")');
  await page.waitForSelector('.log >> text=hello from n2');
  await open(`/jobs/${submitted}`);
  await page.waitForSelector('.note >> text=it is in the queue of Slurm as job 4711: Priority');
  await page.waitForSelector('dt:text-is("Runs on") + dd:text-is("lab, 2 nodes")');
  await page.waitForSelector('text=The log starts when the job starts');
  const buttons = await page.locator('.actions button').allInnerTexts();
  assert.deepEqual(buttons, ['Notify me', 'Cancel…'], 'a submitted job can only be cancelled');

  // Nodes.
  await open('/gpus');
  const nodes = page.getByRole('table', { name: 'Nodes of lab' }).locator('tbody tr[data-id]');
  await nodes.first().waitFor();
  assert.deepEqual(
    (await nodes.allInnerTexts()).map((text) => text.split(/\s*\n\s*|\t/).filter(Boolean)),
    [
      ['n1', '8 of 8', 'NVIDIA H100', '80 GiB', 'up'],
      ['n2', '3 of 8', 'NVIDIA H100', '80 GiB', 'up'],
      ['n3', '0 of 8', 'NVIDIA H100', '–', 'down: not responding'],
    ],
  );
  await page.waitForSelector(
    'section[aria-label="Backend far"] >> text=cannot reach the head node',
  );

  // Filters.
  await open('/history');
  const listed = page.getByRole('table', { name: 'Jobs' }).locator('tbody tr[data-id]');
  const count = (n) => until(async () => (await listed.count()) === n, `${n} jobs`);
  await count(5);
  await page.selectOption('.filters select >> nth=1', 'lab');
  await count(4);
  await page.selectOption('.filters select >> nth=0', 'submitted');
  await count(1);
  assert.ok(page.url().includes('on=lab'));
  await page.selectOption('.filters select >> nth=1', 'local');
  await page.waitForSelector('text=No jobs match');

  // The form: fields of backends appear when one is chosen; errors are shown below their fields.
  await page.click('nav >> text=Submit');
  await page.fill('textarea[name=command]', 'python train.py');
  assert.equal(await page.inputValue('select[name=on]'), 'local');
  assert.equal(await page.locator('[name=nodes], [name=option]').count(), 0);
  await page.selectOption('select[name=on]', 'lab');
  await page.waitForSelector('.preview-facts >> text=1 GPU on lab');
  const errorAt = (name, text) =>
    page.waitForSelector(`.field:has([name=${name}]) >> text=${text}`);
  await page.fill('input[name=nodes]', '4');
  await errorAt('nodes', 'the job requests 4 nodes');
  await page.waitForSelector('.field:has([name=nodes]) >> text=stoker gpus --on lab');
  await page.fill('input[name=nodes]', '2');
  await page.fill('textarea[name=option]', 'array=1-3');
  await errorAt('option', 'is set by Stoker');
  await page.fill('textarea[name=option]', 'constraint=h100\nmail-type=BEGIN,END');
  await page.waitForSelector('.preview-facts >> text=1 GPU on each of 2 nodes of lab');
  await page.waitForSelector('.preview-facts >> text=constraint=h100 mail-type=BEGIN,END');
  // On this host, the hidden fields are not sent.
  await page.selectOption('select[name=on]', 'local');
  await page.waitForSelector('.preview-facts >> text="1 GPU"');
  await page.selectOption('select[name=on]', 'lab');
  await page.click('text=More options');
  await page.click('text=Hold until released');
  await page.click('button:has-text("Submit job")');
  await page.waitForSelector('dt:text-is("Engine options") + dd >> text=mail-type=BEGIN,END');
  await page.waitForSelector('dt:text-is("Runs on") + dd:text-is("lab, 2 nodes")');

  // A clone keeps them.
  await page.click('text=Clone and edit');
  await until(async () => (await page.inputValue('select[name=on]')) === 'lab');
  assert.equal(await page.inputValue('input[name=nodes]'), '2');
  assert.equal(
    await page.inputValue('textarea[name=option]'),
    'constraint=h100\nmail-type=BEGIN,END',
  );
  await page.waitForSelector('.preview-facts >> text=1 GPU on each of 2 nodes of lab');

  // Batches and sweeps have the same fields.
  await open('/submit?kind=batch');
  await page.fill('textarea[name=text]', 'python a.py\npython b.py');
  await page.selectOption('select[name=on]', 'lab');
  await page.waitForSelector('.preview-facts >> text=1 GPU on lab');
  await open('/submit?kind=sweep');
  await page.fill('textarea[name=command]', 'python train.py --lr {lr}');
  await page.fill('[aria-label="Values of lr"]', '1,2');
  await page.selectOption('select[name=on]', 'lab');
  await page.fill('input[name=nodes]', '3');
  await page.waitForSelector('.preview-facts >> text=1 GPU on each of 3 nodes of lab');

  // Cancelling starts the daemon, whose driver finds no engine: nothing else is checked after this.
  await open(`/jobs/${submitted}`);
  await page.click('.actions >> text=Cancel…');
  await page.waitForSelector('dialog >> text=big-run has not started yet.');
  await page.click('dialog button.danger');
  await page.waitForSelector('.toast >> text=Canceling job');
};
