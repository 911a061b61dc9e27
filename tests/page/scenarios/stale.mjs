// The server dies and comes back.
import { Fake } from '../../../frontend/dev/fake.mjs';

export default async ({ fake, page, open, assert }) => {
  await open();
  await page.waitForSelector('.status.live');
  const port = fake.port;
  await fake.close();
  await page.waitForSelector('.banner.bad >> text=The server does not answer');
  assert.equal(await page.locator('main.stale').count(), 1);
  assert.ok(await page.locator('[data-id="21"]').count(), 'what is known stays to be read');

  const second = new Fake(30);
  second.eventId = fake.eventId + 1000;
  second.add({ command: 'echo after the restart', name: 'afterwards' });
  await second.listen(port);
  await page.waitForSelector('.banner.bad', { state: 'detached' });
  await page.waitForSelector('text=afterwards');
  assert.equal(await page.locator('main.stale').count(), 0);
  second.add({ command: 'echo live again', name: 'live again' });
  await page.waitForSelector('text=live again');
  await second.close();
};
