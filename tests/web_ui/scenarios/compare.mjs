// Runs are selected in any table, also across screens, and compared side by side.
const DIFF = (line) =>
  `diff --git a/train.py b/train.py\n--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-old\n+${line}\n`;

export default async ({ fake, page, open, until, assert }) => {
  const EVIL = '<img src=x onerror="window.pwned=1">';
  fake.change(14, { name: EVIL, params: { [EVIL]: EVIL, lr: 0.1 } });
  fake.code = {
    13: { commit: 'a'.repeat(40), diff: DIFF('<b>first</b>') },
    14: { commit: 'a'.repeat(40), diff: DIFF('second') },
    12: { commit: 'c'.repeat(40), diff: DIFF('third') },
  };
  const words = () => new URLSearchParams(new URL(page.url()).hash.split('?')[1]).getAll('runs');
  const bar = page.locator('.selection-bar');

  // Jobs with the key x, a trial with its checkbox, a sweep; the selection survives all of that.
  await open('/history');
  await page.locator('tr[data-id="14"]').focus();
  await page.keyboard.press('x');
  await page.keyboard.press('j');
  await page.keyboard.press('x');
  await bar.locator('text=2 selected').waitFor();
  await open('/sweeps/brave-otter');
  await page.locator('table[aria-label=Trials] tr[data-id="2"] .pick input').click();
  await bar.locator('text=3 selected').waitFor();
  await open('/sweeps');
  await page.locator('tbody .pick input').first().click();
  await bar.locator('text=4 selected').waitFor();
  await page.locator('tbody .pick input').first().click();
  await page.reload();
  await bar.locator('text=3 selected').waitFor();
  await bar.locator('text=Compare').click();
  await page.waitForSelector('.compare');
  assert.deepEqual(words(), ['14', '13', 'brave-otter/2']);
  assert.equal(await bar.count(), 0, 'the comparison has the runs itself');

  // Only what differs, then all; the best value of a metric is marked.
  const table = page.locator('.compare');
  const rows = () => table.locator('tbody th').allInnerTexts();
  assert.ok((await rows()).includes('lr') && !(await rows()).includes('Python'));
  assert.ok((await table.innerText()).includes(EVIL), 'names are shown as text');
  assert.match(await table.locator('.best').innerText(), /0.266667/);
  await page.click('[aria-label=Rows] >> text=All');
  await until(async () => (await rows()).includes('Python'));
  assert.ok(page.url().includes('rows=all'));
  await until(async () => (await page.locator('.legend li').count()) === 3);
  await page.locator('.plot').hover();
  await page.locator('.tip').waitFor();

  // Two jobs: their code. The same commit, then different ones.
  await page.click('button[aria-label="Remove brave-otter/2"]');
  await until(async () => (await page.locator('.diff').count()) === 2);
  assert.deepEqual(words(), ['14', '13']);
  assert.equal(await page.locator('section[aria-label=Code] .note').count(), 0);
  assert.ok((await page.locator('.diff').allInnerTexts()).join().includes('+<b>first</b>'));
  await page.click(`.run-head:has-text("img") button`);
  await page.waitForSelector('.note >> text=This is one run');
  await page.fill('.add-run input', '12');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.note >> text=The commits differ: aaaaaaaaaaaa and cccccccccccc');
  await page.waitForSelector('.note >> text=git diff aaaaaaaaaaaa cccccccccccc');

  // A word that is not a run can be removed again.
  await page.fill('.add-run input', 'nothing');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.failed >> text=there is no run `nothing`');
  await page.click('.chips >> text=nothing');
  await page.waitForSelector('.compare');

  // From a job, with what is selected; from a sweep, its best trials.
  await open('/jobs/11');
  await page.click('.actions >> text=Compare');
  await until(() => words().join() === '13,12,11');
  await open('/sweeps/brave-otter');
  await page.click('.actions >> text=Compare');
  await until(() => words().join() === 'brave-otter');
  await until(async () => (await table.locator('thead th').count()) > 10);
  await open('/history');
  await bar.locator('text=Clear').click();
  await bar.waitFor({ state: 'detached' });
  await open('/compare');
  await page.waitForSelector('.empty >> text=No runs to compare');
  assert.equal(await page.evaluate(() => window.pwned), undefined);
};
