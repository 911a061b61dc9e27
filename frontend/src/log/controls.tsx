// Control characters of a raw log. Few fonts have their pictures (U+2400 and on) and show a box, so
// their names are drawn instead; the picture stays in the text, for whoever copies or searches it.
const NAMES = 'NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US SP DEL'.split(' ');
const FIRST = 0x2400;
const PICTURE = /([\u2400-\u2421])/;
const PICTURES = new RegExp(PICTURE, 'g');
const WIDTH = 3; // columns that a name takes, as in log.css

export function named(text: string) {
  if (!PICTURE.test(text)) return text;
  return text.split(PICTURE).map((part, i) => (i % 2 ? <span key={i} class="control" data-name={NAMES[part.charCodeAt(0) - FIRST]}>{part}</span> : part));
}

/** How many columns a text takes; colours in it are counted too. */
export const widthOf = (text: string) => text.length + (WIDTH - 1) * (text.match(PICTURES)?.length ?? 0);

/** Where the row ends that begins at `from`. */
export function rowEnd(text: string, from: number, columns: number): number {
  let to = from;
  let room = columns;
  while (to < text.length && (room -= PICTURE.test(text[to]!) ? WIDTH : 1) >= 0) to += 1;
  return Math.max(to, from + 1);
}
