// Notes, tags and stars are edited in place.
export default async ({ fake, page, open, until, assert }) => {
  // The note of a job is saved while the user types.
  await open('/jobs/15');
  await page.click('text=+ note');
  const area = page.getByLabel('Note of job 15');
  await area.fill('<img src=x onerror=alert(1)> diverged\nafter 900');
  await until(() => fake.jobs.get(15).note?.endsWith('after 900'));
  await page.waitForSelector('.note-editor >> text=/^saved$/');
  await area.press('Escape');
  await page.waitForSelector('.note-text >> text=diverged');
  assert.equal(await page.locator('.note-box img').count(), 0, 'a note is text, not markup');
  await page.click('.toast >> text=Undo');
  await until(() => fake.jobs.get(15).note === '');

  // The last writer wins.
  await page.click('text=+ note');
  Object.assign(fake.jobs.get(15), { note: 'a long note from another tab', noteRevision: 9 });
  await area.fill('mine');
  await until(() => fake.jobs.get(15).note === 'mine');
  await page.click('text=Done');

  // A server that does not answer: the state says so, and the text is sent again.
  await page.click('text=Edit note');
  await page.route('**/api/jobs/15/note', (route) => route.abort());
  await area.fill('written offline');
  await page.waitForSelector('.note-editor >> text=trying again');
  await page.unroute('**/api/jobs/15/note');
  await until(() => fake.jobs.get(15).note === 'written offline');
  await page.click('text=Done');

  // Tags and star by keyboard.
  await page.click('text=+ tag');
  const newTag = page.getByLabel('New tag of');
  await newTag.fill('paper, <b>bold</b>');
  await newTag.press('Enter');
  await page.waitForSelector('.tags >> text=<b>bold</b>');
  await page.getByRole('button', { name: 'Remove tag paper' }).click();
  await until(() => fake.jobs.get(15).tags.join() === '<b>bold</b>');
  await page.locator('.toast', { hasText: 'Tag paper' }).getByText('Undo').click();
  await until(() => fake.jobs.get(15).tags.includes('paper'));
  await page.keyboard.press('s');
  await until(() => fake.jobs.get(15).starred);
  await page.waitForSelector('.title-row .star[aria-pressed=true]');

  // The history filters by star and tag; the star of a row is toggled there, too.
  await open('/history?starred=true');
  await page.waitForSelector('table .note-mark[title="written offline"]');
  assert.equal(await page.locator('table tbody tr[data-id]').count(), 1);
  await page.getByRole('button', { name: 'Star job 15' }).click();
  await until(() => !fake.jobs.get(15).starred);
  await open('/history?tag=paper');
  await page.waitForSelector('tr[data-id="15"]');

  // A sweep has a note, tags and a star of its own.
  await open('/sweeps/brave-otter');
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Report', exact: true }).click();
  assert.equal((await download).suggestedFilename(), 'brave-otter-report.html');
  await page.click('.title-row .star');
  await page.click('text=+ note');
  await page.getByLabel('Note of sweep brave-otter').fill('which lr?');
  await page.keyboard.press('Control+Enter');
  await page.waitForSelector('.note-text >> text=which lr?');
  await page.click('text=+ tag');
  await newTag.fill('vision');
  await newTag.press('Enter');
  await page.click('.tags a >> text=vision');
  await page.waitForSelector('table[aria-label=Sweeps] .star.on');
  const { starred, tags, note } = fake.sweeps.get('brave-otter');
  assert.deepEqual([starred, tags, note], [true, ['vision'], 'which lr?']);
};
