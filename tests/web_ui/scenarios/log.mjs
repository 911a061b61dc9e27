// The log: following, rendered progress bars, colors, search, loading from the end.
export default async ({ fake, page, open, until, assert }) => {
  await open('/jobs/15/log');
  const log = page.locator('.log');
  await log.waitFor();
  await until(async () => (await log.innerText()).includes('step 119'));
  const shown = await log.innerText();
  assert.ok(
    !shown.includes('\x1b') && !/ 50%/.test(shown),
    'progress bars show their last state only',
  );
  assert.ok(await log.locator('.f6').count(), 'colors are kept');

  fake.write(15, '\x1b[32mfresh line\x1b[0m one\n');
  await until(async () => (await log.innerText()).includes('fresh line'));
  for (let n = 0; n <= 100; n += 20) fake.write(15, `\rsaving ${n}%`);
  await until(async () => (await log.innerText()).includes('saving 100%'));
  assert.ok(!(await log.innerText()).includes('saving 20%'));
  await page.click('button:has-text("Raw")');
  await until(async () => (await log.innerText()).includes('saving 20%␍saving 40%'));
  assert.equal(
    await log.locator('.control').last().getAttribute('data-name'),
    'CR',
    'drawn as a name, since few fonts have the glyph',
  );
  await page.click('button:has-text("Raw")');

  // A large log loads its end first, and the rest on scrolling up.
  const lines = Array.from({ length: 60_000 }, (_, i) => `line ${i} ${'é'.repeat(20)}`);
  lines[30_000] = 'Traceback (most recent call last):';
  fake.logs.set(16, Buffer.from(`${lines.join('\n')}\n`));
  fake.requests.length = 0;
  await open('/jobs/16/log');
  await until(async () => (await log.innerText()).includes('line 59999'));
  assert.ok(
    (await page.locator('.log-shown > div').count()) < 200,
    'only visible rows are rendered',
  );
  assert.match(await page.locator('.log-foot').innerText(), /bytes .* of 3\.\d MiB/);
  await log.evaluate((node) => (node.scrollTop = 0));
  await until(async () => !(await page.locator('.log-foot').innerText()).includes('3.0 MiB to'));
  await until(
    async () =>
      (await page.locator('button:has-text("Follow")').getAttribute('aria-pressed')) === 'false',
  );
  const top = (await log.innerText()).match(/line (\d+)/)[1];
  assert.ok(Number(top) > 40_000, 'the visible rows stay visible');

  await page.click('text=First error');
  await until(async () =>
    (
      await page
        .locator('.hit')
        .innerText()
        .catch(() => '')
    ).startsWith('Traceback'),
  );
  await page.fill('.log-search', 'line 4711 ');
  await page.press('.log-search', 'Enter');
  await until(async () =>
    (
      await page
        .locator('.hit')
        .innerText()
        .catch(() => '')
    ).startsWith('line 4711 '),
  );
  await until(async () => (await page.locator('.hit mark').allInnerTexts())[0] === 'line 4711 ');
  await until(async () => (await page.locator('.log-tools output').innerText()) === '1 of 1');
  await page.click('button:has-text("Follow")');
  await until(async () => (await log.innerText()).includes('line 59999'));
  assert.equal(
    await page.locator('a:has-text("Download")').getAttribute('href'),
    '/api/jobs/16/log/download',
  );

  // The search covers the rendered log: across colors, and only the last state of a progress bar.
  fake.logs.set(
    1,
    Buffer.from('one\n\x1b[31mred nee\x1b[0mdle\nbar 10% lost\rbar 100% found\nred needle\n'),
  );
  await open('/jobs/1/log');
  await until(async () => (await log.innerText()).includes('bar 100% found'));
  assert.equal(
    await page.locator('button:has-text("Follow")').count(),
    0,
    'the log of a finished job does not grow',
  );
  await page.fill('.log-search', 'red needle');
  await page.press('.log-search', 'Enter');
  await until(async () => (await page.locator('.log-tools output').innerText()) === '1 of 2');
  await until(
    async () => (await page.locator('.hit mark').allInnerTexts()).join('') === 'red needle',
  );
  await page.press('.log-search', 'Enter');
  await until(async () => (await page.locator('.log-tools output').innerText()) === '2 of 2');
  await page.press('.log-search', 'Shift+Enter');
  await until(async () => (await page.locator('.log-tools output').innerText()) === '1 of 2');
  await page.fill('.log-search', 'lost');
  await page.press('.log-search', 'Enter');
  await page.waitForSelector('.toast >> text=not found in this log');
  await open('/jobs/1');
  await until(async () => (await log.boundingBox())?.height < 120, 'a short log has a small box');
};
