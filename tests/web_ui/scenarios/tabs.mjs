// A browser allows six connections to a server. The seventh tab is live all the same.
export default async ({ fake, context, page, open, until, assert }) => {
  await open();
  const pages = [page];
  for (let i = 0; i < 7; i++) {
    const other = await context.newPage();
    await other.goto(fake.url);
    await other.waitForSelector('.gpu');
    pages.push(other);
  }
  await until(() => fake.streams.size === 1, 'one stream for all');
  const id = fake.add({ command: 'echo for all' });
  for (const one of pages) await one.locator(`[aria-label=Queue] [data-id="${id}"]`).waitFor();
  for (const one of pages) await one.waitForSelector('.status.live');
  // The tab that reads for the others goes away.
  await page.close();
  await until(() => fake.streams.size === 1);
  const next = fake.add({ command: 'echo for the rest' });
  for (const one of pages.slice(1)) await one.locator(`[aria-label=Queue] [data-id="${next}"]`).waitFor();
  assert.equal(fake.streams.size, 1);
};
