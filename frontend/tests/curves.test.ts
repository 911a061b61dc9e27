import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEFAULT, hasLayout, layoutFrom, textOf, withLayout } from '../src/curves/layout';
import {
  panned,
  part,
  placeOf,
  scaleFor,
  tickText,
  ticksOf,
  valueAt,
  zoomed,
} from '../src/parts/axis';
import { extentOf, heightAt, nearLines, nearestIndex, seriesOf } from '../src/parts/series';

const near = (a: number, b: number) => Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(b));

test('a layout in an address is read back, and other keys stay', () => {
  const layout = {
    ...DEFAULT,
    metrics: ['val,loss', 'a&b=c', '<img src=x>'],
    x: 'time' as const,
    smooth: 0.6,
    group: 'seed',
    isLogX: true,
    logY: ['a&b=c'],
    columns: 2,
    zoom: [-0.5, 1200] as [number, number],
    hidden: ['s/3', '12'],
    marked: 's/4',
  };
  const query = withLayout(new URLSearchParams('sort=-acc&metric=old&smooth=0.9'), layout);
  assert.deepEqual(layoutFrom(new URLSearchParams(query.toString())), layout);
  assert.equal(query.get('sort'), '-acc');
  assert.equal(withLayout(query, DEFAULT).toString(), 'sort=-acc');
});

test('values that an address cannot have are ignored', () => {
  const query = new URLSearchParams('smooth=7&across=9&zoom=3_1&x=foo&logx=yes');
  assert.ok(hasLayout(query));
  assert.deepEqual(layoutFrom(query), DEFAULT);
  assert.equal(layoutFrom(new URLSearchParams('zoom=1')).zoom, null);
  assert.equal(layoutFrom(new URLSearchParams('smooth=NaN')).smooth, 0);
});

test('the zoom and the hidden runs are not remembered for the next visit', () => {
  assert.equal(textOf({ ...DEFAULT, zoom: [1, 2], hidden: ['1'], marked: '1' }), '');
  assert.equal(textOf({ ...DEFAULT, group: 'lr', zoom: [1, 2] }), 'group=lr');
});

test('the nearest point is found past points that were not measured', () => {
  const line = seriesOf([
    [0, 1],
    [10, null],
    [20, 3],
  ]);
  assert.equal(nearestIndex(line, 9), 0);
  assert.equal(nearestIndex(line, 11), 2);
  assert.equal(nearestIndex(line, -5), 0);
  assert.equal(nearestIndex(line, 99), 2);
  assert.equal(nearestIndex(seriesOf([]), 1), -1);
  assert.equal(nearestIndex(seriesOf([[1, null]]), 1), -1);
});

test('points in any order become an ascending line', () => {
  const line = seriesOf([
    [2, 20],
    [1, 5],
    [1, 10],
  ]);
  assert.deepEqual([...line.xs], [1, 2], 'a step that was reported twice keeps its last value');
  assert.equal(heightAt(line, 1.5), 15);
  assert.ok(Number.isNaN(heightAt(line, 3)) && Number.isNaN(heightAt(line, 0)));
});

test('lines are listed by their distance to the pointer, without those that ended before', () => {
  const flat = (y: number, to: number) => seriesOf([[0, y], [to, y]]); // prettier-ignore
  const found = nearLines([flat(10, 100), flat(50, 100), flat(49, 20)], 60, 60, 48, Number, Number);
  assert.deepEqual(found.map((one) => one.line), [1, 0]); // prettier-ignore
  assert.equal(found[0]!.distance, 2);
});

test('a log axis shows only positive values', () => {
  const values = [Float64Array.from([0, -1, NaN, 0.01, 100, Infinity])];
  assert.deepEqual(extentOf(values, true), [0.01, 100]);
  assert.deepEqual(extentOf(values, false), [-1, 100]);
  assert.equal(extentOf([Float64Array.from([0, NaN])], true), null);
  const scale = scaleFor([0.01, 100], true, 0);
  assert.ok(near(placeOf(scale, 1), 0.5));
  assert.ok(near(valueAt(scale, 0.5), 1));
  assert.ok(!Number.isFinite(placeOf(scale, 0)));
});

test('an axis of one value has room around it', () => {
  for (const isLog of [false, true]) {
    const scale = scaleFor([3, 3], isLog, 0.05);
    assert.ok(scale.from < 3 && scale.to > 3);
  }
  assert.ok(scaleFor(null, true, 0).from > 0);
});

test('zooming keeps the value below the pointer and stops at the ends', () => {
  for (const isLog of [false, true]) {
    const whole = scaleFor([1, 1000], isLog, 0);
    const [from, to] = zoomed(whole, 0.25, 0.5, whole)!;
    const closer = { from, to, isLog };
    assert.ok(near(valueAt(closer, 0.25), valueAt(whole, 0.25)));
    assert.equal(zoomed(closer, 0.5, 100, whole), null, 'zoomed out to the whole axis');
    const moved = panned(closer, 99, whole);
    assert.ok(near(moved[1], 1000));
    assert.ok(near(placeOf(whole, moved[1]) - placeOf(whole, moved[0]), 0.5));
    const back = panned({ from: moved[0], to: moved[1], isLog }, -99, whole);
    assert.ok(near(back[0], 1));
  }
});

test('a part may be dragged in both directions', () => {
  const whole = scaleFor([0, 100], false, 0);
  assert.deepEqual(part(whole, 0.6, 0.2, whole), [20, 60]);
  assert.equal(part(whole, -1, 2, whole), null);
});

test('ticks of log axes are powers of ten, with 2 and 5 where there is room', () => {
  assert.deepEqual(ticksOf(scaleFor([1e-3, 1], true, 0), 4), [1e-3, 1e-2, 1e-1, 1]);
  assert.deepEqual(ticksOf(scaleFor([1, 10], true, 0), 4), [1, 2, 5, 10]);
  assert.ok(ticksOf(scaleFor([1e-12, 1e12], true, 0), 5).length <= 6);
  assert.ok(ticksOf(scaleFor([40, 60], true, 0), 4).length >= 3, 'less than a decade has ticks');
});

test('ticks of wall time are round durations', () => {
  const marks = ticksOf(scaleFor([0, 7000], false, 0), 4, 'duration');
  assert.deepEqual(marks.map((x) => tickText(x, 'duration')), ['0', '30m', '1h', '1h30m']); // prettier-ignore
  assert.deepEqual([5, 90, 120].map((x) => tickText(x, 'duration')), ['5s', '1m30s', '2m']); // prettier-ignore
  const log = ticksOf(scaleFor([2, 5000], true, 0), 4, 'duration');
  assert.deepEqual(log.map((x) => tickText(x, 'duration')), ['10s', '1m', '10m', '1h']); // prettier-ignore
});
