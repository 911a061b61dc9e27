// Brushes on several axes filter the table and the curves, by mouse and by keyboard, and are in the address.
export const options = { viewport: { width: 1280, height: 1600 } };

export default async ({ fake, page, open, until, assert }) => {
  fake.addSweep('large', 3000);
  await open('/sweeps/large');
  const section = page.getByRole('region', { name: 'Parameters' });
  const canvas = section.getByRole('img');
  await canvas.waitFor();
  const trials = page.getByRole('region', { name: 'Trials' });
  const number = async (region) => (await region.locator('header .num').first().innerText()).trim();
  const where = async () =>
    new URLSearchParams((await page.evaluate(() => location.hash)).split('?')[1]).get('where');
  assert.match(await canvas.getAttribute('aria-label'), /3000 trials over lr, opt, wd, val_loss/);

  // The second axis is a category: a drag around its upper end selects one value.
  const drag = async (i, from, to) => {
    const { x, y, width } = await canvas.boundingBox(); // the charts above change their height
    const at = x + 52 + (i * (width - 104)) / 3;
    await page.mouse.move(at, y + from);
    await page.mouse.down();
    await page.mouse.move(at, y + (from + to) / 2);
    await page.mouse.move(at, y + to);
    await page.mouse.up();
  };
  await drag(1, 20, 60);
  await until(async () => (await where()) === 'opt in ["sgd"]');
  await until(async () => (await number(trials)) === '1,000 of 3,000');
  // The first axis is logarithmic: its lower half is below the middle decade.
  await drag(0, 150, 299);
  await until(async () =>
    /^opt in \["sgd"\] and lr >= 0.0001 and lr <= 0.00\d+$/.test(await where()),
  );
  const both = fake.sweeps
    .get('large')
    .rows.filter((row) => row.opt === 'sgd' && row.lr <= 0.001).length;
  await until(async () => (await number(trials)) === `${both} of 3,000`);
  await until(async () => (await number(section)) === `${both} of 3,000 trials`);
  await section.getByText(/--where 'opt in/).waitFor();

  // The same by keyboard, in a new tab: the link has the filter.
  await page.reload();
  await until(async () => (await number(trials)) === `${both} of 3,000`);
  await section.getByText('Axes and ranges').press('Enter');
  const from = section.getByRole('textbox', { name: 'lr from' });
  await from.fill('0.0003');
  await from.press('Enter');
  await from.press('Tab');
  await until(async () => (await where()).includes('lr >= 0.0003'));
  await section.getByRole('checkbox', { name: 'adam' }).press('Space');
  await until(async () => !(await where()).includes('opt'), 'both values are no filter');

  // Axes are hidden, shown and moved.
  await section.getByRole('button', { name: 'Hide wd' }).press('Enter');
  await section.getByRole('button', { name: 'Show acc' }).press('Enter');
  await section.getByRole('button', { name: 'Move acc left' }).press('Enter');
  await until(async () =>
    /over lr, opt, acc, val_loss/.test(await canvas.getAttribute('aria-label')),
  );
  await section.getByRole('combobox', { name: 'Color' }).selectOption('acc');
  await section.getByText(/color: rank by acc/).waitFor();
  await section.getByRole('button', { name: 'Clear' }).press('Enter');
  await until(async () => (await where()) === null);
  await until(async () => (await number(trials)) === '3,000');

  // On a phone, the chart scrolls in its own box and the page does not.
  await page.setViewportSize({ width: 390, height: 844 });
  await until(() => page.evaluate(() => document.documentElement.scrollWidth <= 390));
};
