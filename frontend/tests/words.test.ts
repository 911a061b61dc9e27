import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exactSize, exactTime } from '../src/screens/submit-clone';
import { withFieldLabels, withKeyLabels, visible } from '../src/words';

test('command-line flags in messages become field labels', () => {
  assert.equal(withFieldLabels('use --gpus 2'), 'use “GPUs” 2');
  assert.equal(withFieldLabels('a `--time-limit` below that'), 'a “Time limit” below that');
  assert.equal(withFieldLabels('python train.py --lr 1'), 'python train.py --lr 1');
  assert.equal(withFieldLabels('no job `tags`, seed=3'), 'no job `tags`, seed=3');
  assert.equal(
    withFieldLabels('add --on; its nodes: stoker gpus --on lab; or --nodes 2'),
    'add “Runs on”; its nodes: stoker gpus --on lab; or “Nodes” 2',
  );
  assert.equal(withKeyLabels('use gpus=2 or fewer'), 'use “GPUs” 2 or fewer');
  assert.equal(withKeyLabels('`time_limit`: `x` is'), '“Time limit”: `x` is');
});

test('invisible characters are shown as escapes', () => {
  assert.equal(visible('a\u202egpj.exe'), 'a\\u202egpj.exe');
  assert.equal(visible('zero\u200bwidth \ufeff\x07'), 'zero\\u200bwidth \\ufeff\\x07');
  assert.equal(visible('\udcff'), '\\xff');
  assert.equal(visible('plain é 日本\n'), 'plain é 日本\n');
});

test('a clone requests exactly what the original job requested', () => {
  assert.deepEqual(
    [exactSize(20 * 2 ** 30), exactSize(1536 * 2 ** 20), exactSize(1000), exactSize(null)],
    ['20G', '1536M', '1000', ''],
  );
  assert.deepEqual(
    [exactTime(7200), exactTime(5400), exactTime(61), exactTime(0.5), exactTime(null)],
    ['2h', '90m', '61s', '0.5s', ''],
  );
});
