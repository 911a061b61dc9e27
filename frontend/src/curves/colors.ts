// The colors of lines: ranks within one sweep, else a distinct color for each run.
import { shade } from '../parts/shades';
import { color, isDark } from '../theme';

const NAMED = 8; // --c1 to --c8

/** A color for the n-th of several runs. */
export function distinctColor(n: number): string {
  if (n < NAMED) return color(`c${n + 1}`);
  // The golden angle: neighbors have different hues.
  return `hsl(${Math.round((n * 137.5) % 360)} 55% ${isDark.peek() ? 66 : 40}%)`;
}

/** The color of a rank, 0 (best) to 1; gray if there is none. */
export const rankColor = (rank: number | null) => (rank === null ? color('ink-3') : shade(rank));
