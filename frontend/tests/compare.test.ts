import assert from 'node:assert/strict';
import { test } from 'node:test';
import { filePairs, filesOf } from '../src/compare-files';

const diff = (name: string, line: string) =>
  `diff --git a/${name} b/${name}\nindex 1..2 100644\n--- a/${name}\n+++ b/${name}\n@@ -1 +1 @@\n-old\n+${line}\n`;

test('a diff is split into its files', () => {
  const files = filesOf(diff('train.py', 'x') + diff('a dir/b c.py', 'diff --git is not a head'));
  assert.deepEqual([...files.keys()], ['train.py', 'a dir/b c.py']);
  assert.ok(files.get('a dir/b c.py')!.endsWith('+diff --git is not a head'));
  assert.equal(filesOf('').size, 0);
});

test('files that two jobs changed differently come first', () => {
  const pairs = filePairs(
    diff('a.py', 'same') + diff('b.py', 'one'),
    diff('a.py', 'same') + diff('b.py', 'two') + diff('c.py', 'new'),
  );
  assert.deepEqual(
    pairs.map((pair) => [pair.name, pair.isSame, pair.first === null]),
    [
      ['b.py', false, false],
      ['c.py', false, true],
      ['a.py', true, false],
    ],
  );
});
