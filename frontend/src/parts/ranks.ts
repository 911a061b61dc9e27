// The ranks of the trials of a sweep.

/** The rank of each trial, 0 (best) to 1 (worst), by trial number. */
export type Ranks = Map<number, number>;

/** Ranks rather than values set the colors: one diverged trial would otherwise make all others look alike. */
export function ranksOf(results: { trial: number; value: number }[], isMax: boolean): Ranks {
  const order = [...results].sort((a, b) => (isMax ? b.value - a.value : a.value - b.value));
  return new Map(order.map((one, i) => [one.trial, order.length > 1 ? i / (order.length - 1) : 0]));
}
