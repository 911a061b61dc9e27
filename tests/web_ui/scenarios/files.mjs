// The files of a job: images over steps, previews, downloads, and hostile names and contents.
import { someFiles } from '../files.mjs';

const EVIL = [
  '<img src=x onerror="window.pwned=1">.txt',
  'page<svg onload=window.pwned=1>.html',
  'new\nline.txt',
  '\u202eevil.txt',
];

export default async ({ fake, page, open, until, assert, newContext }) => {
  fake.files = new Map([[15, someFiles(EVIL)]]);
  await open('/jobs/15');
  const section = page.getByRole('region', { name: 'Files', exact: true });
  await section.waitFor();
  const text = () => section.innerText();
  assert.match(await text(), /18 files, 1\.3 GiB/);
  assert.match(await text(), /Links and special files are not listed: 2\./);

  // Images over steps: the newest first, with the slider by keyboard, and the buttons.
  const figure = section.locator('figure', { hasText: 'samples' });
  const image = figure.locator('img');
  assert.equal(await image.getAttribute('alt'), 'samples, step 1000');
  await until(() => image.evaluate((node) => node.naturalWidth === 64));
  const slider = figure.getByRole('slider', { name: 'Step of samples' });
  await slider.focus();
  await page.keyboard.press('Home');
  assert.equal(await image.getAttribute('alt'), 'samples, step 0');
  await page.keyboard.press('ArrowRight');
  assert.equal(await image.getAttribute('alt'), 'samples, step 100');
  await figure.getByRole('button', { name: 'Later step' }).click();
  assert.equal(await image.getAttribute('alt'), 'samples, step 200');
  assert.match(await figure.innerText(), /step 200/);

  // Previews.
  const show = (name) => section.getByRole('button', { name, exact: true }).click();
  const preview = (name) => section.getByRole('group', { name: `Preview of ${name}`, exact: true });
  await show('results.csv');
  await preview('results.csv').locator('td').first().waitFor();
  assert.match(await preview('results.csv').innerText(), /val_loss[\s\S]*<b>x<\/b>/);
  await show('config.json');
  await until(async () => /"lr": 0\.001/.test(await preview('config.json').innerText()));
  await show('speech.wav');
  await preview('speech.wav').locator('audio[controls]').waitFor();
  await show('broken.png');
  await until(async () => /too large to show/.test(await preview('broken.png').innerText()));

  // Names and contents are text.
  for (const name of EVIL) {
    const shown = name.replace('\n', '\\n').replace('\u202e', '\\u202e');
    await show(shown);
    const part = preview(shown).locator('pre');
    await part.waitFor();
    assert.equal(await part.textContent(), name.replace('\u202e', '\\u202e'));
  }
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  assert.ok(!(await text()).includes('\u202e'));

  // Downloads; checkpoints are plain rows.
  const link = section.getByRole('link', { name: 'Download last.pt' });
  assert.match(
    await link.getAttribute('href'),
    /^\/api\/jobs\/15\/files\/download\?file=checkpoints%2Flast\.pt$/,
  );
  assert.equal(await section.getByRole('button', { name: 'last.pt', exact: true }).count(), 0);

  // A job without files has no section.
  await open('/jobs/14');
  await page.waitForSelector('text=Details');
  assert.equal(await section.count(), 0);

  // On a phone, nothing is wider than the screen.
  const phone = await newContext({ viewport: { width: 390, height: 844 }, hasTouch: true });
  const small = await phone.newPage();
  await small.goto(fake.link);
  await small.waitForSelector('main .gpu');
  await small.evaluate(() => (location.hash = '#/jobs/15'));
  await small.locator('.image-steps img').first().scrollIntoViewIfNeeded();
  const widths = await small.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(widths[0] <= widths[1], `${widths}`);
};
