// Names, commands and output of jobs are shown as text, never as markup.
const EVIL = [
  '<img src=x onerror="window.pwned=1">',
  '<script>window.pwned=1</script>',
  '"><svg onload=window.pwned=1>',
  'javascript:window.pwned=1',
  '{{constructor.constructor("window.pwned=1")()}}',
  '</title><script>window.pwned=1</script>',
  '\u202eevil',
  '<a href="javascript:window.pwned=1">x</a>',
  '<style>*{display:none}</style>',
];

export default async ({ fake, page, open, until, assert, settled }) => {
  EVIL.forEach((text, i) =>
    fake.change(21 + i, {
      name: text,
      command: text,
      cwd: text,
      tags: [text],
      why: text,
      detail: text,
      state: i % 2 ? 'queued' : 'failed',
      cause: 'start_failed',
      ended_at: new Date().toISOString(),
      started_at: new Date().toISOString(),
      attempts: 1,
      stdout: text,
      stderr: text,
      params: { [text]: text },
      sweep: text,
      trial: 1,
    }),
  );
  EVIL.forEach((text, i) =>
    fake.write(
      21 + i,
      `${text}\n\x1b]8;;javascript:window.pwned=1\x07link\x1b]8;;\x07\n\x1b]0;${text}\x07\n\x1b[31m${text}\x1b[0m\n`,
    ),
  );
  fake.addSweep(EVIL[0], 6);
  fake.sweeps.get(EVIL[0]).rows.forEach((row, i) => Object.assign(row, { opt: EVIL[i] }));
  fake.gpus[0].model = fake.gpus[0].state = EVIL[0];
  fake.gpus[6].other_processes[0].user = EVIL[0];
  await open();
  const checkInert = async (what) => {
    await settled(page);
    const state = await page.evaluate(() => ({
      pwned: window.pwned,
      bad: document.querySelectorAll(
        'main img, main script, main style, main iframe, main a[href^="javascript:"], [onerror], [onload]',
      ).length,
    }));
    assert.deepEqual(state, { pwned: undefined, bad: 0 }, what);
  };
  await checkInert('overview');
  assert.ok((await page.locator('main').innerText()).includes(EVIL[0]), 'the text is visible');
  for (let i = 0; i < EVIL.length; i++) {
    await open(`/jobs/${21 + i}`);
    await page.waitForSelector('h1');
    // A bidirectional override is shown as an escape.
    const shown = EVIL[i].replace('\u202e', '\\u202e');
    await until(async () =>
      (
        await page
          .locator('.log')
          .innerText()
          .catch(() => '')
      ).includes(shown),
    );
    assert.equal(await page.locator('h1').innerText(), shown);
    assert.ok(!(await page.locator('main').innerText()).includes('\u202e'));
    await checkInert(`job ${EVIL[i]}`);
  }
  for (const path of [
    '/history',
    `/history?q=${encodeURIComponent(EVIL[0])}`,
    '/gpus',
    '/sweeps',
    `/sweeps/${encodeURIComponent(EVIL[0])}`,
    `/compare?${new URLSearchParams([
      ['runs', 21],
      ['runs', 23],
      ['runs', EVIL[0]],
      ['hide', EVIL[0]],
      ['metric', EVIL[0]],
      ['metric', 'acc'],
      ['group', EVIL[0]],
    ])}`,
    `/submit?from=21`,
    `/${encodeURIComponent(EVIL[0])}`,
  ]) {
    await open(path);
    await checkInert(path);
  }
  await open('/jobs/21');
  await page.click('button:has-text("Remove…")');
  await checkInert('dialog');
  await page.keyboard.press('Escape');
};
