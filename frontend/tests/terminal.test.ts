import assert from 'node:assert/strict';
import { test } from 'node:test';
import { styledSpans } from '../src/log/colours';
import { Terminal, rawLines } from '../src/log/terminal';

function shown(text: string, size = text.length || 1): string[] {
  const terminal = new Terminal();
  for (let at = 0; at < text.length; at += size) terminal.feed(text.slice(at, at + size));
  return terminal.rows;
}

test('a carriage return overwrites the line', () => {
  assert.deepEqual(shown('10%\r50%\r100%\ndone\n'), ['100%', 'done', '']);
  assert.deepEqual(shown('a\r\nb\r\n'), ['a', 'b', '']);
  assert.deepEqual(shown('abc\r'), ['abc']);
});

test('nested progress bars overwrite earlier lines', () => {
  assert.deepEqual(shown('outer 0\ninner 0\x1b[A\router 1\n\rinner 1\n'), [
    'outer 1',
    'inner 1',
    '',
  ]);
});

test('every escape sequence except colors is dropped', () => {
  assert.deepEqual(
    shown('\x1b]0;title\x07a\x1b[31mb\x1b[0m\x1b[2Jc\x1b]52;c;ZXZpbA==\x1b\\d\x1b(B\x1b[?25l'),
    ['a\x1b[31mb\x1b[0mcd'],
  );
  assert.deepEqual(shown('a\x00\x07\x9bb\x7f'), ['ab']);
  assert.deepEqual(shown('abc\b\bX'), ['aX']);
});

test('an unterminated string sequence hides one line only', () => {
  assert.deepEqual(shown('a\x1b]0;evil\nb'), ['a', 'b']);
});

test('lines do not depend on how the text is split into chunks', () => {
  const text =
    'x\x1b[31mred\x1b[0m\n10%\r20%\r\x1b[K30%\n\x1b]0;t\x07one\n\x1b[Atwo\n\x1b[1;38;5;208mwide\x1b[0m\n';
  const whole = shown(text);
  for (let size = 1; size < 12; size++)
    assert.deepEqual(shown(text, size), whole, `chunks of ${size}`);
});

test('the terminal records where each line starts', () => {
  const terminal = new Terminal();
  terminal.feed('ab\ncd\x1b[3');
  terminal.feed('1m!\nef');
  assert.deepEqual(terminal.starts, [0, 3, 12]);
});

test('color sequences become styles, never markup', () => {
  const { spans, style } = styledSpans('a\x1b[1;31mb\x1b[38;2;1;2;3mc\x1b[0m<b>', {});
  assert.deepEqual(
    spans.map((one) => one.text),
    ['a', 'b', 'c', '<b>'],
  );
  assert.deepEqual(spans[1]!.style, { isBold: true, fg: '1' });
  assert.equal(spans[2]!.style.fg, 'rgb(1 2 3)');
  assert.deepEqual(style, {});
});

test('the raw view shows control characters as symbols', () => {
  assert.deepEqual(rawLines('a\r\x1b[1m\nb\t'), ['a␍␛[1m', 'b\t']);
});
