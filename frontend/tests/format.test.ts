import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventReader } from '../src/events';
import { bytes, duration, value } from '../src/format';
import { ticks } from '../src/parts/axis';

test('times and sizes are formatted as in the terminal', () => {
  assert.deepEqual([0.25, 75, 3700, 90_000].map(duration), ['0.2s', '1m15s', '1h01m', '1d01h']);
  assert.deepEqual([1536, 20 * 2 ** 30, 12].map(bytes), ['1.5 KiB', '20 GiB', '12 B']);
  assert.deepEqual([0.1 + 0.2, 1e-5, 3, null, true].map(value), ['0.3', '1e-05', '3', '–', 'true']);
});

test('events are parsed correctly however the stream is split', () => {
  const text =
    ': ping\n\nid: 7\nevent: change\ndata: {"a":\ndata: 1}\n\nevent: reset\ndata: {}\n\n';
  for (let size = 1; size < 20; size++) {
    const reader = new EventReader();
    const found = [];
    for (let at = 0; at < text.length; at += size)
      found.push(...reader.feed(text.slice(at, at + size)));
    assert.deepEqual(found, [
      { id: '7', kind: 'change', data: '{"a":\n1}' },
      { id: '7', kind: 'reset', data: '{}' },
    ]);
  }
});

test('ticks are round numbers', () => {
  assert.deepEqual(ticks(0, 1, 4), [0, 0.5, 1]);
  assert.deepEqual(ticks(0.03, 0.97, 5), [0.2, 0.4, 0.6, 0.8]);
  assert.deepEqual(ticks(0, 100 * 2 ** 30, 3, 'bytes').map(bytes), ['0 B', '50 GiB', '100 GiB']);
});
