// A clone starts with the exact options of its job; each form keeps its own draft.
export default async ({ fake, page, open, until, assert }) => {
  fake.change(2, {
    command: "python 'a b.py'",
    argv: ['python', 'a b.py'],
    shell: false,
    gpus: 2,
    gpu_mem_bytes: 20 * 2 ** 30 + 1024,
    gpu_ids: ['0', '2'],
    prefer: ['2'],
    min_gpu_mem_bytes: 40 * 2 ** 30,
    on_oom: 'fail',
    time_limit: 5461,
    priority: 7,
    tags: ['x', 'y'],
    group: 'team',
    after: [{ job: 1, condition: 'any', met: true }],
  });
  const assertPosted = (expected) => {
    const names = Object.keys(expected);
    assert.deepEqual(Object.fromEntries(names.map((name) => [name, fake.posted[name]])), expected);
  };
  const value = (name) => page.inputValue(`[name=${name}]`);
  await open('/submit?from=2');
  await page.waitForSelector('h1:has-text("Clone of job 2")');
  await until(async () => (await value('command')) === "python 'a b.py'");
  await page.waitForSelector('text=This job gets the environment of job 2');
  await page.waitForSelector('.preview li');
  await page.click('button:has-text("Submit job")');
  await page.waitForSelector('.toast >> text=queued');
  assertPosted({
    based_on: 2,
    argv: ['python', 'a b.py'],
    command: undefined,
    gpu_mem: '20971521K',
    gpu_ids: ['0', '2'],
    prefer: ['2'],
    min_gpu_mem: '40G',
    on_oom: 'fail',
    time_limit: '5461s',
    priority: 7,
    tags: ['x', 'y'],
    group: 'team',
    after: ['1:any'],
    dry_run: undefined,
  });

  // Each clone is a separate form, and a new job starts empty.
  await open('/submit?from=2');
  await until(async () => (await value('command')) === "python 'a b.py'");
  await page.fill('[name=command]', 'python other.py');
  await open('/submit?from=1');
  await until(async () => (await value('command')) === fake.jobs.get(1).command);
  await open('/submit?from=999');
  await page.waitForSelector('.failed >> text=there is no job 999');
  await page.click('nav >> text=Submit');
  await page.waitForSelector('h1:text-is("Submit")');
  assert.equal(await page.locator('.failed').count(), 0);
  assert.equal(await value('command'), '');
  await page.fill('[name=command]', 'python fresh.py');
  await page.waitForSelector('.preview li');
  assert.equal(fake.posted.based_on, undefined);

  // Drafts survive switching forms and screens until they are submitted.
  await page.click('.tabs >> text=Sweep');
  await page.fill('[name=command]', 'python train.py --lr {lr}');
  await page.fill('[aria-label="Values of lr"]', '1,2');
  await page.click('.tabs >> text=Batch');
  await page.fill('[name=text]', 'python b.py');
  await page.click('nav >> text=Overview');
  await page.click('nav >> text=Submit');
  assert.equal(await value('command'), 'python fresh.py');
  await page.click('.tabs >> text=Batch');
  assert.equal(await value('text'), 'python b.py');
  await page.click('.tabs >> text=Sweep');
  assert.equal(await page.inputValue('[aria-label="Values of lr"]'), '1,2');
  await open('/submit?from=2');
  await until(async () => (await value('command')) === 'python other.py');
  await page.click('button:has-text("Reset form")');
  await until(async () => (await value('command')) === "python 'a b.py'");
  await page.click('nav >> text=Submit');
  await page.waitForSelector('.preview li');
  await page.click('button:has-text("Submit job")');
  await page.waitForSelector('h1:not(:text-is("Submit"))');
  await page.click('nav >> text=Submit');
  await until(async () => (await value('command')) === '');
};
