import assert from 'node:assert/strict';
import { test } from 'node:test';
import { prioritiesFor } from '../src/order';

const queue = (...priorities: number[]) =>
  priorities.map((priority, i) => ({ id: i + 1, priority }));

/** The order of the queue after the changes, as the server sorts it. */
function after(priorities: number[], from: number, to: number): number[] {
  const before = queue(...priorities);
  const changes = prioritiesFor(before, from, to);
  const place = new Map(before.map((job, i) => [job.id, i]));
  return before
    .map((job) => ({ ...job, priority: changes.get(job.id) ?? job.priority }))
    .sort((a, b) => b.priority - a.priority || place.get(a.id)! - place.get(b.id)!)
    .map((job) => job.id);
}

test('a job moves to its target, and all others keep their order', () => {
  for (const priorities of [
    [0, 0, 0, 0, 0],
    [5, 3, 3, 0, 0],
    [2, 1, 0, -1, -1],
    [9, 9, 8, 8, 7],
    [1, 0, 0, 0, -3],
  ]) {
    for (let from = 0; from < 5; from++) {
      for (let to = 0; to < 5; to++) {
        const wanted = [1, 2, 3, 4, 5];
        wanted.splice(to, 0, ...wanted.splice(from, 1));
        assert.deepEqual(after(priorities, from, to), wanted, `${priorities}: ${from} to ${to}`);
      }
    }
  }
});

test('as few priorities as possible change', () => {
  assert.deepEqual([...prioritiesFor(queue(9, 5, 0, 0), 3, 2)], [[4, 1]]);
  assert.deepEqual([...prioritiesFor(queue(0, 0, 0), 2, 1)].sort(), [
    [1, 2],
    [3, 1],
  ]);
  assert.equal(prioritiesFor(queue(0, 0), 1, 1).size, 0);
});
