// The token is taken from the address and leaves it; without one there is a form.
export default async ({ fake, newContext, page, assert, until }) => {
  await page.goto(fake.link);
  await page.waitForSelector('.gpu');
  assert.equal(new URL(page.url()).hash, '#/');
  assert.equal(await page.evaluate(() => history.length), 2, 'about:blank and the page: the token is not in the history');
  assert.ok(!(await page.content()).includes(fake.token));
  await page.reload();
  await page.waitForSelector('.gpu');

  const stranger = await (await newContext()).newPage();
  await stranger.goto(fake.url);
  await stranger.fill('input[name=token]', 'wrong');
  await stranger.click('text=Sign in');
  await stranger.waitForSelector('text=This token is not the right one');
  await stranger.fill('input[name=token]', fake.link); // somebody pastes the whole link
  await stranger.click('text=Sign in');
  await stranger.waitForSelector('.gpu');
  await until(() => stranger.locator('.status.live').count());

  // The link in a tab that is open already.
  await stranger.goto(fake.link);
  await stranger.waitForSelector('.gpu');
  await until(() => new URL(stranger.url()).hash === '#/');

  // A server that forgot us asks again.
  fake.session = 'another';
  await stranger.evaluate(() => (location.hash = '#/history'));
  await stranger.waitForSelector('input[name=token]');
};
