// Browser notifications: asked for after a click, remembered, shown once by one hidden tab, as text.
export const options = { permissions: ['notifications'] };

/** Record what the page does with the real Notification of the browser. */
function record() {
  const Real = self.Notification;
  self.shown = [];
  self.asked = 0;
  self.Notification = class extends Real {
    constructor(title, options) {
      super(title, options);
      self.shown.push({ title, ...options });
      self.last = this;
    }
    static requestPermission() {
      self.asked += 1;
      return Real.requestPermission();
    }
  };
}

const hide = (page, hidden) =>
  page.evaluate((is) => {
    Object.defineProperty(document, 'hidden', { value: is, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);

/** How many tabs are visible, as the browser knows it: it grants and releases locks a bit later. */
const visibleTabs = (page) =>
  page.evaluate(
    async () =>
      (await navigator.locks.query()).held.filter((lock) => lock.name === 'stoker-visible').length,
  );

const shown = (page) => page.evaluate(() => self.shown);

async function choose(page, label) {
  await page.getByRole('button', { name: /Browser notifications/ }).click();
  await page.getByLabel(label).check();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.locator('dialog').waitFor({ state: 'detached' });
}

export default async ({ fake, context, newContext, page, open, until, assert }) => {
  await context.addInitScript(record);
  await open();
  const ends = (id, state = 'failed', more = {}) =>
    fake.change(id, { state, exit_code: 1, ended_at: new Date().toISOString(), ...more });
  assert.equal(await page.evaluate(() => Notification.permission), 'granted');

  // Nothing is shown before the user chooses something; a hidden tab closes its stream.
  await hide(page, true);
  await until(() => fake.streams.size === 0);
  await hide(page, false);
  await until(() => fake.streams.size === 1);

  await choose(page, 'Jobs that fail');
  const [first, second, third, fourth, ...rest] = [...fake.jobs.values()]
    .filter((one) => one.state === 'running')
    .map((one) => one.id);
  const other = await context.newPage();
  await other.goto(fake.url);
  await other.waitForSelector('.gpu');

  // A visible tab shows the job itself.
  await until(async () => (await visibleTabs(page)) === 2);
  await hide(page, true);
  ends(first);
  await other.getByRole('table', { name: 'Recent jobs' }).locator(`[data-id="${first}"]`).waitFor();

  // Two hidden tabs: one of them notifies, about failures only.
  await hide(other, true);
  await until(async () => (await visibleTabs(page)) === 0);
  ends(second, 'done');
  ends(third, 'failed', { name: '<img src=x onerror=alert(1)>' });
  const both = async () => [...(await shown(page)), ...(await shown(other))];
  await until(async () => (await both()).length > 0);
  const [one, ...more] = await both();
  assert.deepEqual(more, []);
  assert.match(one.title, /^<img src=x onerror=alert\(1\)> failed after .*: exit 1$/);
  assert.equal(one.body, `job ${third}`);
  assert.equal(fake.streams.size, 1);

  // A click on it opens the job.
  const reader = (await shown(page)).length ? page : other;
  await reader.evaluate(() => self.last.onclick());
  assert.match(reader.url(), new RegExp(`#/jobs/${third}$`));
  await other.close();

  // The choice is remembered; nothing asks for permission that the browser has given already.
  await page.evaluate(() => (location.hash = '#/'));
  await page.reload();
  await page.waitForSelector('.gpu');
  await page.getByRole('button', { name: 'Browser notifications are on' }).waitFor();
  assert.equal(await page.evaluate(() => self.asked), 0);
  await choose(page, 'All jobs that end');
  await until(() => fake.streams.size === 1);
  await hide(page, true);
  await until(async () => (await visibleTabs(page)) === 0);
  fake.change(fourth, { state: 'done', ended_at: new Date().toISOString() });
  await until(async () => (await shown(page)).length === 1);
  await hide(page, false);

  // A job that the user selected on its page.
  await choose(page, 'Only jobs that I select on their page');
  const [fifth, sixth] = rest;
  await page.evaluate((id) => (location.hash = `#/jobs/${id}`), fifth);
  await page.getByRole('button', { name: 'Notify me' }).click();
  await page.getByRole('button', { name: 'Notify me', pressed: true }).waitFor();
  await hide(page, true);
  await until(async () => (await visibleTabs(page)) === 0);
  ends(sixth);
  ends(fifth, 'done');
  await until(async () => (await shown(page)).length === 2);
  assert.equal((await shown(page))[1].body, `job ${fifth}`);
  assert.equal(await page.evaluate(() => localStorage.getItem('stoker-notify-jobs')), '[]');

  // A browser that refuses: the dialog says so, and nothing is remembered.
  const refused = await newContext({ permissions: [] });
  const without = await refused.newPage();
  await without.goto(fake.link);
  await without.waitForSelector('.gpu');
  if ((await without.evaluate(() => Notification.permission)) === 'denied') {
    await without.getByRole('button', { name: /Browser notifications/ }).click();
    await without.getByLabel('All jobs that end').check();
    await without.getByRole('button', { name: 'Save' }).click();
    await without.getByText('The browser does not allow notifications').waitFor();
    assert.equal(await without.evaluate(() => localStorage.getItem('stoker-notify')), null);
  }
};
