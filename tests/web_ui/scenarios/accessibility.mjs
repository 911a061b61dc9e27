// Accessibility basics: contrast, names of controls, target sizes, one main heading, no horizontal scrolling.
import { backend } from '../data.mjs';
import { someFiles } from '../files.mjs';

const PATHS = [
  '/',
  '/jobs/15',
  '/jobs/21',
  '/jobs/15/log',
  '/sweeps',
  '/sweeps/brave-otter',
  '/submit',
  '/submit?kind=sweep',
  '/history',
  '/compare?runs=2&runs=brave-otter/3&metric=val_loss&metric=acc&zoom=10_90',
  '/gpus',
];

export function contrastProblems() {
  // color-mix() is computed as `color(srgb 0.5 0.5 0.5)`.
  const parse = (text) => {
    const parts = (text.match(/[\d.]+/g) ?? []).map(Number);
    return text.startsWith('color(srgb') ? parts.map((x, i) => (i < 3 ? 255 * x : x)) : parts;
  };
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) =>
      v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4,
    );
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const over = (top, below) => {
    const a = top[3] ?? 1;
    return [0, 1, 2].map((i) => top[i] * a + below[i] * (1 - a));
  };
  const background = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if ((color[3] ?? 1) > 0.99) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    if (![...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim())) continue;
    const box = node.getBoundingClientRect();
    if (
      !box.width ||
      !box.height ||
      node.closest('.visually-hidden, .skip, option, .faint, .probe')
    )
      continue;
    let opacity = 1;
    for (let at = node; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
    const back = background(node);
    const ink = parse(getComputedStyle(node).color);
    const [a, b] = [
      luminance(over([...ink.slice(0, 3), (ink[3] ?? 1) * opacity], back)),
      luminance(back),
    ];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5)
      found.push(
        `${ratio.toFixed(2)} ${node.className || node.tagName}: ${node.textContent.trim().slice(0, 30)}`,
      );
  }
  return [...new Set(found)];
}

function namelessControls() {
  const named = (node) =>
    node.textContent.trim() ||
    node.getAttribute('aria-label') ||
    node.labels?.[0]?.textContent.trim();
  return [
    ...document.querySelectorAll(
      'button, input, select, textarea, a[href], canvas:not([aria-hidden])',
    ),
  ]
    .filter((node) => !named(node))
    .map((node) => node.outerHTML.slice(0, 120));
}

/** Controls smaller than 24 pixels, except for links in running text and blocks of the timeline, whose width
 * is a time; zooming makes them larger. */
function smallTargets() {
  return [
    ...document.querySelectorAll(
      'button, .button, select, input:not([type=checkbox]), .pick label',
    ),
  ]
    .map((node) => [node, node.getBoundingClientRect()])
    .filter(
      ([node, box]) =>
        box.width &&
        Math.min(box.width, box.height) < 23.5 &&
        !node.closest('thead, .visually-hidden, .tl-track'),
    )
    .map(([node, box]) => `${box.width}x${box.height} ${node.outerHTML.slice(0, 100)}`);
}

export default async ({ fake, newContext, settled, assert }) => {
  fake.backends = [backend('lab'), backend('far', { problem: 'cannot reach the head node' })];
  const far = { on: 'lab', node: 'n1', node_gpus: '0,1' };
  fake.change(15, far);
  fake.files = new Map([[15, someFiles()]]);
  fake.change(14, far);
  fake.change(21, { on: 'lab', state: 'submitted', why: 'it is in the queue of Slurm' });
  for (const colorScheme of ['light', 'dark']) {
    for (const width of [1280, 360]) {
      const context = await newContext({ viewport: { width, height: 800 }, colorScheme });
      const page = await context.newPage();
      await page.goto(fake.link);
      await page.waitForSelector('.gpu');
      for (const path of PATHS) {
        await page.evaluate((hash) => (location.hash = hash), `#${path}`);
        await settled(page);
        const where = `${path} ${colorScheme} ${width}`;
        assert.deepEqual(await page.evaluate(contrastProblems), [], `contrast of ${where}`);
        assert.deepEqual(await page.evaluate(namelessControls), [], `controls of ${where}`);
        assert.deepEqual(await page.evaluate(smallTargets), [], `targets of ${where}`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= width, `${where} is ${wide} px wide`);
        assert.equal(await page.locator('h1').count(), 1, `headings of ${where}`);
      }
      await context.close();
    }
  }
};
