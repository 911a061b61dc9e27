import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  axisOf,
  brushBetween,
  brushesOf,
  filterOf,
  isSelected,
  joinFilter,
  splitFilter,
} from '../src/parts/parallel-axes';

const rows = (name: string, values: unknown[]) => values.map((x) => ({ [name]: x }));

test('an axis is logarithmic if its values span decades', () => {
  const lr = axisOf('lr', rows('lr', [1e-5, 1e-3, 1e-1, null]));
  assert.ok(lr.isLog);
  assert.ok(Math.abs(lr.at(1e-3)! - 0.5) < 1e-9);
  assert.ok(Math.abs(lr.numberAt(0.5) - 1e-3) < 1e-12);
  assert.equal(lr.at(null), null);
  assert.equal(axisOf('n', rows('n', [0, 1000])).isLog, false, 'zero has no logarithm');
  assert.equal(axisOf('n', rows('n', [10, 20])).isLog, false);
});

test('text, booleans and mixed values are categories', () => {
  const opt = axisOf('opt', rows('opt', ['sgd', 'adam', 'sgd']));
  assert.deepEqual(opt.values, ['adam', 'sgd']);
  assert.equal(opt.at('sgd'), 1);
  assert.deepEqual(brushBetween(opt, 0.9, 1), { values: ['sgd'] });
  assert.equal(brushBetween(opt, 0.4, 0.6), null);
  assert.equal(axisOf('x', rows('x', [1, 'a'])).isNumber, false);
  assert.equal(axisOf('x', rows('x', [true, false])).isNumber, false);
});

test('a brush has short numbers and includes the ends of the axis', () => {
  const axis = axisOf('x', rows('x', [0.123456, 0.987654]));
  const low = brushBetween(axis, 0, 0.5) as { from: number; to: number };
  assert.equal(low.from, 0.123456);
  assert.equal(low.to, 0.556);
  assert.ok(isSelected({ x: 0.123456 }, { x: low }));
  assert.equal(isSelected({ x: null }, { x: low }), false);
  assert.deepEqual(brushBetween(axis, 0, 1), { from: 0.123456, to: 0.987654 });
});

test('brushes are written as a filter and read back', () => {
  const brushes = {
    lr: { from: 1e-7, to: 0.01 },
    'val/loss': { from: -Infinity, to: -2.5 },
    opt: { values: ['a] and b', 'it\'s "x"', 3, true] },
    lambda: { from: 1e21, to: Infinity },
  };
  const text = filterOf(brushes);
  assert.equal(
    text,
    'lr >= 1e-7 and lr <= 0.01 and `val/loss` <= -2.5 and opt in ["a] and b", "it\'s \\"x\\"", 3, True] and `lambda` >= 1e+21',
  );
  assert.deepEqual(brushesOf(text), brushes);
  for (const other of [
    'lr > 1',
    "state == 'done'",
    'lr >= 1 or x <= 2',
    'lr >= __import__',
    'lr in [x]',
  ])
    assert.deepEqual(brushesOf(other), {});
});

test('a filter that the user typed stays beside the brushes', () => {
  const brushes = { lr: { from: 1, to: 2 } };
  const typed = "state == 'done' or x < 1";
  const text = joinFilter(typed, brushes);
  assert.equal(text, "(state == 'done' or x < 1) and lr >= 1 and lr <= 2");
  assert.deepEqual(splitFilter(text), { rest: typed, brushes });
  assert.deepEqual(splitFilter(typed), { rest: typed, brushes: {} });
  assert.equal(joinFilter(typed, {}), typed);
  assert.deepEqual(splitFilter(joinFilter('', brushes)), { rest: '', brushes });
});
