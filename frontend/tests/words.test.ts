import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exactSize, exactTime } from '../src/screens/submit-clone';
import { attemptWords } from '../src/format';
import { inPageWords, visible } from '../src/words';

test('flags of the command line are fields of the page', () => {
  assert.equal(inPageWords('use --gpus 2'), 'use “GPUs” 2');
  assert.equal(inPageWords('a `--time-limit` below that'), 'a “Time limit” below that');
  assert.equal(inPageWords('python train.py --lr 1'), 'python train.py --lr 1');
});

test('what cannot be seen is shown as an escape, as the command line does', () => {
  assert.equal(visible('a\u202egpj.exe'), 'a\\u202egpj.exe');
  assert.equal(visible('zero\u200bwidth \ufeff\x07'), 'zero\\u200bwidth \\ufeff\\x07');
  assert.equal(visible('\udcff'), '\\xff');
  assert.equal(visible('plain é 日本\n'), 'plain é 日本\n');
});

test('a clone asks for exactly what the job asked for', () => {
  assert.deepEqual([exactSize(20 * 2 ** 30), exactSize(1536 * 2 ** 20), exactSize(1000), exactSize(null)], ['20G', '1536M', '1000', '']);
  assert.deepEqual([exactTime(7200), exactTime(5400), exactTime(61), exactTime(0.5), exactTime(null)], ['2h', '90m', '61s', '0.5s', '']);
});

test('an attempt says how it ended', () => {
  const one = { number: 1, devices: [], started_at: 'x', ended_at: 'y', cause: null, detail: null, status: 0 };
  assert.equal(attemptWords({ ...one, status: 3 << 8 }), 'exit 3');
  assert.equal(attemptWords({ ...one, status: 9, cause: 'signal' }), 'killed by SIGKILL');
  assert.equal(attemptWords({ ...one, status: 1 << 8, cause: 'gpu_oom' }), 'out of GPU memory, exit 1');
  assert.equal(attemptWords({ ...one, status: null }), 'no exit record');
  assert.equal(attemptWords({ ...one, ended_at: null, status: null }), 'running');
});
