// The queue is ordered by priority first. To put a job between two others is to find priorities
// that say so, and to change as few jobs as possible.

export interface Ranked {
  id: number;
  priority: number;
}

/** New priorities (by job) that move the job at `from` to `to`. Jobs that keep theirs are left out. */
export function prioritiesFor(queue: readonly Ranked[], from: number, to: number): Map<number, number> {
  const changes = new Map<number, number>();
  const moved = queue[from];
  if (!moved || from === to) return changes;
  const rest = queue.filter((_, place) => place !== from);
  const above = rest[to - 1];
  const below = rest[to];
  if (!below) {
    // Last: behind all that rank like the one above.
    if (above) set(changes, moved, above.priority - 1);
    return changes;
  }
  let level = below.priority + 1;
  set(changes, moved, level);
  // Whoever stands above must outrank it; equals among them stay equals, so they keep their order.
  let last = level;
  for (let place = to - 1; place >= 0; place--) {
    const job = rest[place];
    if (!job || job.priority > level) break;
    if (place === to - 1 || job.priority !== last) level += 1;
    last = job.priority;
    set(changes, job, level);
  }
  return changes;
}

function set(changes: Map<number, number>, job: Ranked, priority: number): void {
  if (job.priority !== priority) changes.set(job.id, priority);
}

/** Jobs by the priority that they get: one request each. */
export function byPriority(changes: Map<number, number>): Map<number, number[]> {
  const groups = new Map<number, number[]>();
  for (const [id, priority] of changes) groups.set(priority, [...(groups.get(priority) ?? []), id]);
  return groups;
}
