import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ranksOf } from '../src/parts/ranks';
import { digitsFor, span, ticks } from '../src/parts/axis';

test('the CPU axis of an idle job still reaches one full core', () => {
  assert.deepEqual(span(0.1, 0.9, { fromZero: true, least: 100 }), [0, 100]);
  assert.ok(span(0, 780, { fromZero: true, least: 100 })[1] > 780);
});

test('neighboring ticks have different labels', () => {
  const marks = ticks(0, 1, 3);
  assert.equal(new Set(marks.map((mark) => mark.toFixed(digitsFor(marks)))).size, marks.length);
});

test('a diverged trial does not change the ranks of the others', () => {
  const ranks = ranksOf(
    [
      { trial: 1, value: 0.2 },
      { trial: 2, value: 1e9 },
      { trial: 3, value: 0.3 },
    ],
    false,
  );
  assert.deepEqual([ranks.get(1), ranks.get(3), ranks.get(2)], [0, 0.5, 1]);
  assert.equal(
    ranksOf(
      [
        { trial: 1, value: 0.2 },
        { trial: 2, value: 0.4 },
      ],
      true,
    ).get(2),
    0,
  );
});
