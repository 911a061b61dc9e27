// A browser allows six connections to a server; with eight tabs, all of them get updates.
export default async ({ fake, context, page, open, until, assert }) => {
  await open();
  const pages = [page];
  for (let i = 0; i < 7; i++) {
    const other = await context.newPage();
    await other.goto(fake.url);
    await other.waitForSelector('.gpu');
    pages.push(other);
  }
  await until(() => fake.streams.size === 1, 'all tabs share one stream');
  const id = fake.add({ command: 'echo for all' });
  for (const one of pages) await one.locator(`[aria-label=Queue] [data-id="${id}"]`).waitFor();
  for (const one of pages) await one.waitForSelector('.status.live');
  // The tab that reads the stream is closed.
  await page.close();
  await until(() => fake.streams.size === 1);
  const next = fake.add({ command: 'echo for the rest' });
  for (const one of pages.slice(1))
    await one.locator(`[aria-label=Queue] [data-id="${next}"]`).waitFor();
  assert.equal(fake.streams.size, 1);
};
