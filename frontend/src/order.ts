// Manual reordering of the queue. The queue is ordered by priority first, so a job is moved between
// two others by changing priorities, of as few jobs as possible.

export interface Ranked {
  id: number;
  priority: number;
}

/** The new priorities, by job id, that move the job at `from` to `to`; unchanged jobs are left out. */
export function prioritiesFor(
  queue: readonly Ranked[],
  from: number,
  to: number,
): Map<number, number> {
  const changes = new Map<number, number>();
  const moved = queue[from];
  if (!moved || from === to) return changes;
  const rest = queue.filter((_, place) => place !== from);
  const above = rest[to - 1];
  const below = rest[to];
  if (!below) {
    // To the end: below all jobs with the priority of the last one.
    if (above) set(changes, moved, above.priority - 1);
    return changes;
  }
  let level = below.priority + 1;
  set(changes, moved, level);
  // Jobs above need a higher priority. Equal priorities stay equal, so those jobs keep their order.
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

/** Group job ids by new priority; each group needs one request. */
export function byPriority(changes: Map<number, number>): Map<number, number[]> {
  const groups = new Map<number, number[]>();
  for (const [id, priority] of changes) groups.set(priority, [...(groups.get(priority) ?? []), id]);
  return groups;
}
