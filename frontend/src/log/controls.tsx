// Control characters in the raw view of a log. Few fonts have glyphs for U+2400 to U+2421, so CSS
// draws their names instead; the characters stay in the text for copying and searching.
const NAMES =
  'NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US SP DEL'.split(
    ' ',
  );
const FIRST = 0x2400;
const PICTURE = /([\u2400-\u2421])/;
const PICTURES = new RegExp(PICTURE, 'g');
const WIDTH = 3; // columns of a name, as in log.css

export function withNamedControls(text: string) {
  if (!PICTURE.test(text)) return text;
  return text.split(PICTURE).map((part, i) =>
    i % 2 ? (
      <span key={i} class="control" data-name={NAMES[part.charCodeAt(0) - FIRST]}>
        {part}
      </span>
    ) : (
      part
    ),
  );
}

/** The columns of a text without tabs and wide characters. */
export const widthOf = (text: string) =>
  text.length + (WIDTH - 1) * (text.match(PICTURES)?.length ?? 0);

/** The end index of the row of at most `columns` columns that starts at `from`. */
export function rowEnd(text: string, from: number, columns: number): number {
  let to = from;
  let room = columns;
  while (to < text.length && (room -= PICTURE.test(text[to]!) ? WIDTH : 1) >= 0) to += 1;
  return Math.max(to, from + 1);
}
