// Curves of a sweep: zoom, pan, cursor, legend, settings, and a layout that is remembered and in the address.
export default async ({ fake, page, open, until, assert, newContext }) => {
  await open('/sweeps/brave-otter');
  const plots = page.locator('.plot');
  await plots.first().waitFor();
  const query = () => new URLSearchParams(new URL(page.url()).hash.split('?')[1] ?? '');
  const tip = page.locator('.tip');
  /** The number of pixels of the first chart that are not empty. */
  const painted = () =>
    page.evaluate(() => {
      const canvas = document.querySelector('.plot canvas');
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      let found = 0;
      for (let i = 3; i < data.length; i += 4) if (data[i]) found++;
      return found;
    });
  await until(async () => (await painted()) > 2000);
  assert.equal(
    await page.locator('.legend li').count(),
    15,
    'one entry for each trial with curves',
  );

  // Another chart: the cursor is shared, and the tooltip lists the nearest runs.
  await page.click('summary:has-text("Charts")');
  await page.click('.menu-body >> text=acc');
  await until(async () => (await plots.count()) === 2);
  await page.keyboard.press('Escape');
  assert.deepEqual(query().getAll('metric'), ['val_loss', 'acc']);
  const box = await plots.first().boundingBox();
  const at = (x, y) => [box.x + x * box.width, box.y + y * box.height];
  await page.mouse.move(...at(0.5, 0.6));
  await tip.waitFor();
  assert.match(await tip.innerText(), /^step \d+/);
  assert.equal(await tip.locator('.tip-row').count(), 8);
  assert.equal(await tip.locator('.near').count(), 1, 'the nearest run stands out');
  assert.match(await tip.innerText(), /lr=.*opt=/, 'with its parameters');
  await page.locator('figure >> nth=1').locator('.readout').waitFor();
  assert.equal(await tip.count(), 1, 'only the chart with the pointer has a tooltip');
  const lit = await page.locator('.legend .lit').innerText();
  await page.mouse.click(...at(0.5, 0.6));
  await until(() => query().get('mark'));
  assert.equal(`#${query().get('mark').split('/')[1]}`, lit, 'a click highlights the run');
  await page.click('.legend .marked .name');
  await until(() => !query().has('mark'));

  // Zoom: a drag selects a part of the x axis for all charts; a pan moves it; a double-click resets.
  const zoom = () => (query().get('zoom') ?? '').split('_').map(Number);
  const drag = async (from, to) => {
    await page.mouse.move(...at(...from));
    await page.mouse.down();
    await page.mouse.move(...at(...to), { steps: 4 });
    await page.mouse.up();
  };
  await drag([0.3, 0.5], [0.6, 0.5]);
  await page.locator('.reset').first().waitFor();
  assert.equal(await page.locator('.reset').count(), 2, 'both charts show the same part');
  await until(() => query().has('zoom'));
  const before = zoom();
  assert.ok(before[0] > 60 && before[1] < 260, before.join());
  await page.keyboard.down('Shift');
  await drag([0.6, 0.5], [0.4, 0.5]);
  await page.keyboard.up('Shift');
  await until(() => zoom()[0] > before[0] + 5);
  const moved = zoom();
  assert.ok(Math.abs(moved[1] - moved[0] - (before[1] - before[0])) < 1, 'a pan keeps the size');
  await page.mouse.dblclick(...at(0.5, 0.2));
  await page.locator('.reset').first().waitFor({ state: 'detached' });
  await drag([0.3, 0.3], [0.7, 0.8]);
  await until(async () => (await page.locator('.reset').count()) === 2);
  await page.locator('.reset').first().click();
  await until(() => !query().has('zoom'));

  // The same with the keyboard.
  await plots.first().focus();
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('ArrowLeft');
  await until(async () => (await tip.innerText()).startsWith('step 39'));
  const first = await tip.locator('.near').innerText();
  await page.keyboard.press('ArrowUp');
  await until(async () => (await tip.locator('.near').innerText()) !== first);
  await page.keyboard.press('+');
  await page.keyboard.press('+');
  await until(() => zoom()[0] > 250);
  const [from] = zoom();
  await page.keyboard.press('Shift+ArrowLeft');
  await until(() => zoom()[0] < from);
  await page.keyboard.press('0');
  await until(() => !query().has('zoom'));

  // Hide a run, and only show one.
  const swatch = page.locator('.legend .swatch');
  await swatch.first().click();
  await until(async () => (await page.locator('.legend .off').count()) === 1);
  assert.equal(query().getAll('hide').length, 1);
  await swatch.nth(3).click({ modifiers: ['Shift'] });
  await until(async () => (await page.locator('.legend .off').count()) === 14);
  await page.click('.legend >> text=Show all');
  await until(() => !query().has('hide'));

  // Settings: smoothing, log axes, wall time, groups, columns.
  await page.locator('input[type=range]').fill('0.6');
  await until(() => query().get('smooth') === '0.6');
  await page.click('button[aria-label="Log y axis of val_loss"]');
  await page.check('text=Log x');
  await page.click('.curve-tools >> text=Time');
  await page.click('[aria-label=Columns] >> text=1');
  await page.selectOption('[aria-label="Group by"]', 'lr');
  await page.selectOption('[aria-label="Group also by"]', 'opt');
  await until(async () => /lr=0.01, opt=sgd/.test(await page.locator('.legend').innerText()));
  await page.selectOption('[aria-label="Group also by"]', '');
  await until(async () => (await page.locator('.legend li').count()) === 5);
  assert.match(await page.locator('.legend').innerText(), /lr=0.001 0\.\d+ ± 0\.\d+ \(3 runs\)/);
  await page.mouse.move(...at(0.5, 0.5));
  await until(async () => /\d+s[^]*lr=0.01[^]* to /.test(await tip.innerText()));
  await until(() =>
    page.evaluate(() =>
      [...document.querySelectorAll('.plot')].every((plot) => {
        const [line, area] = ['.u-cursor-x', '.u-over'].map((name) =>
          plot.querySelector(name).getBoundingClientRect(),
        );
        return line.left > area.left && line.left < area.right;
      }),
    ),
  );
  const layout = query().toString();
  assert.equal(
    layout,
    'metric=val_loss&metric=acc&x=time&smooth=0.6&group=lr&logx=1&logy=val_loss&across=1',
  );

  // A link shows the same in another browser; this one remembers the layout of the sweep.
  const other = await (await newContext()).newPage();
  await other.goto(fake.link);
  await other.waitForSelector('.gpu');
  await other.goto(`${fake.url}/#/sweeps/brave-otter?${layout}`);
  await until(async () => (await other.locator('.legend li').count()) === 5);
  assert.equal(await other.locator('.across-1 .plot').count(), 2);
  await other.close();
  await open('/sweeps');
  await page.waitForSelector('table[aria-label=Sweeps]');
  await open('/sweeps/brave-otter');
  await until(() => query().toString() === layout);
  await page.click('text=Reset layout');
  await until(async () => (await plots.count()) === 1);
  assert.equal(query().toString(), '');

  // Sorting the trials keeps the layout of the charts in the address, and a filter limits the curves.
  await page.click('button[aria-label="Log y axis of val_loss"]');
  await page.click('.head:has-text("acc")');
  await until(() => query().get('sort') && query().get('logy'));
  await page.locator('.parallel canvas[role=img]').scrollIntoViewIfNeeded();
  const canvas = await page.locator('.parallel canvas[role=img]').boundingBox();
  await page.mouse.move(canvas.x + 46, canvas.y + 40);
  await page.mouse.down();
  await page.mouse.move(canvas.x + 46, canvas.y + 90, { steps: 4 });
  await page.mouse.up();
  await until(async () => (await page.locator('.legend li').count()) < 15);
  await page.click('section[aria-label=Parameters] >> text=Clear');
  await until(async () => (await page.locator('.legend li').count()) === 15);
};
