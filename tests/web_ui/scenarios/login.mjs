// The token is removed from the address; without a token the sign-in form is shown.
export default async ({ fake, newContext, page, assert, until }) => {
  await page.goto(fake.link);
  await page.waitForSelector('.gpu');
  assert.equal(new URL(page.url()).hash, '#/');
  assert.equal(
    await page.evaluate(() => history.length),
    2,
    'about:blank and the web UI: the token is not in the history',
  );
  assert.ok(!(await page.content()).includes(fake.token));
  await page.reload();
  await page.waitForSelector('.gpu');

  const other = await (await newContext()).newPage();
  await other.goto(fake.url);
  await other.fill('input[name=token]', 'wrong');
  await other.click('text=Sign in');
  await other.waitForSelector('text=This token is not valid');
  await other.fill('input[name=token]', fake.link); // the form accepts the whole link
  await other.click('text=Sign in');
  await other.waitForSelector('.gpu');
  await until(() => other.locator('.status.live').count());

  // The link opened in a tab that already shows the web UI: it signs in, and loads the page again.
  await other.evaluate(() => (self.isOld = true));
  await other.goto(fake.link);
  await until(() => other.evaluate(() => !self.isOld).catch(() => false), 'the new page');
  await other.waitForSelector('.gpu');
  await until(() => new URL(other.url()).hash === '#/');

  // An expired session leads to the sign-in form.
  fake.session = 'another';
  await other.evaluate(() => (location.hash = '#/history'));
  await other.waitForSelector('input[name=token]');
};
