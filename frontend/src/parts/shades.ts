// The color of a rank, 0 (best) to 1 (worst). Lightness changes too, for color-blind users.
import { isDark } from '../theme';

const LIGHT = [
  [68, 1, 84],
  [33, 145, 140],
  [226, 205, 80],
];
const DARK = [
  [250, 225, 60],
  [40, 160, 140],
  [96, 72, 140],
];

export function shade(x: number): string {
  const stops = isDark.peek() ? DARK : LIGHT;
  const at = Math.max(0, Math.min(1, x)) * 2;
  const first = Math.min(1, Math.floor(at));
  const from = stops[first]!;
  const to = stops[first + 1]!;
  return `rgb(${from.map((a, i) => Math.round(a + (to[i]! - a) * (at - first))).join(' ')})`;
}
