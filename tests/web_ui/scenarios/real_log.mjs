// With the real server: a log with progress bars, colors and a search, as the server renders it.
import { spawnSync } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { join } from 'node:path';

const stoker = (...words) => {
  const done = spawnSync(process.env.STOKER_PYTHON, ['-m', 'stoker', ...words], {
    encoding: 'utf8',
  });
  if (done.status !== 0) throw new Error(`${words.join(' ')}: ${done.stderr}`);
  return done.stdout;
};

export default async ({ page, open, until, assert }) => {
  const file = join(process.env.LOG_FOLDER, 'output');
  const lines = Array.from({ length: 30_000 }, (_, i) => `line ${i} ${'é'.repeat(20)}`);
  const id = stoker('submit', '-o', file, '--name', 'bars', 'echo started; sleep 600').match(
    /\d+/,
  )[0];
  await open(`/jobs/${id}/log`);
  const log = page.locator('.log');
  const text = () => log.innerText().catch(() => '');
  const write = (more) => appendFileSync(file, more);
  await until(async () => (await text()).includes('started'));
  write(`${lines.join('\n')}\n\x1b[1;32mready\x1b[0m <b>\u202e\nouter 0\ninner 0`);
  await until(async () => (await text()).includes('inner 0'));
  assert.ok((await text()).includes('ready <b>\\u202e'), 'invisible characters are escaped');
  assert.equal(await log.locator('.bold.f2').innerText(), 'ready');

  // Two bars that move the cursor up, over several responses.
  for (let n = 1; n <= 4; n++) {
    write(`\x1b[A\router ${n}\n\rinner ${n}`);
    await until(async () => (await text()).endsWith(`outer ${n}\ninner ${n}`));
    assert.ok(!(await text()).includes(`outer ${n - 1}`), 'the line was overwritten');
  }
  await page.click('button:has-text("Raw")');
  await until(async () => (await text()).includes('inner 3␛[A␍outer 4'));
  await page.click('button:has-text("Raw")');
  await until(async () => (await text()).endsWith('outer 4\ninner 4'));

  // A match is shown in the line that contains it, and a bar in the present state when following again.
  await page.fill('.log-search', 'line 4711 ');
  await page.press('.log-search', 'Enter');
  const hit = page.locator('.hit');
  await until(async () => (await hit.innerText().catch(() => '')).startsWith('line 4711 '));
  await until(async () => (await hit.locator('mark').allInnerTexts())[0] === 'line 4711 ');
  await page.fill('.log-search', 'outer 4');
  await page.press('.log-search', 'Enter');
  await until(async () => (await hit.innerText().catch(() => '')) === 'outer 4');
  await page.click('button:has-text("Follow")');
  write('\ndone\n');
  await until(async () => (await text()).endsWith('outer 4\ninner 4\ndone'));

  // Earlier lines are loaded on scrolling up, and the visible ones stay visible.
  await log.evaluate((node) => (node.scrollTop = 0));
  await until(async () => /bytes /.test(await page.locator('.log-foot').innerText()));
  await until(async () => (await log.evaluate((node) => node.scrollTop)) > 0);
  await until(async () => {
    await log.evaluate((node) => (node.scrollTop = 0));
    return (await text()).startsWith('started\nline 0 ');
  }, 'the first line');
  const first = (await text())
    .split('\n')
    .slice(1)
    .map((line) => Number(line.split(' ')[1]));
  assert.deepEqual(
    first.slice(0, 30),
    Array.from({ length: 30 }, (_, i) => i),
    'no line is missing or repeated',
  );
};
