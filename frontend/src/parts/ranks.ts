// How good trials are among each other.

/** How bad each trial is, 0 to 1, by its number. */
export type Ranks = Map<number, number>;

/** By rank and not by value, so that one diverged trial does not make all others look alike. */
export function ranksOf(results: { trial: number; value: number }[], isMax: boolean): Ranks {
  const order = [...results].sort((a, b) => (isMax ? b.value - a.value : a.value - b.value));
  return new Map(order.map((one, i) => [one.trial, order.length > 1 ? i / (order.length - 1) : 0]));
}
