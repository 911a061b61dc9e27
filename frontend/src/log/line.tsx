// One line of a log.
import { visible } from '../words';
import { type TextStyle, styledSpans } from './colours';
import { withNamedControls } from './controls';

const PALETTE_INDEX = /^\d+$/;

/** The visible characters of a line from index `from` to `to`. */
export function Line({
  text,
  style,
  needle,
  from,
  to,
}: {
  text: string;
  style: TextStyle | undefined;
  needle: string;
  from: number;
  to: number;
}) {
  const { spans } = styledSpans(text, style ?? {});
  const ends = needle ? matchBorders(spans.map((span) => span.text).join(''), needle) : [];
  let at = 0;
  return (
    <>
      {spans.map((span, i) => {
        const start = at;
        at += span.text.length;
        const first = Math.max(start, from);
        const last = Math.min(at, to);
        return (
          first < last && (
            <Text
              key={i}
              text={span.text.slice(first - start, last - start)}
              style={span.style}
              at={first}
              ends={ends}
            />
          )
        );
      })}
    </>
  );
}

/** The start and end of each match, alternating. A match may cover several styles. */
function matchBorders(text: string, needle: string): number[] {
  const low = text.toLowerCase();
  const wanted = needle.toLowerCase();
  const found: number[] = [];
  for (let hit = low.indexOf(wanted); hit >= 0; hit = low.indexOf(wanted, hit + wanted.length))
    found.push(hit, hit + wanted.length);
  return found;
}

function Text({
  text,
  style: textStyle,
  at,
  ends,
}: {
  text: string;
  style: TextStyle;
  at: number;
  ends: number[];
}) {
  const inner = ends.length ? withMarks(text, at, ends) : withNamedControls(visible(text));
  const classes = [
    textStyle.isBold && 'bold',
    textStyle.isDim && 'faint',
    textStyle.isItalic && 'slant',
    textStyle.isUnderlined && 'under',
    textStyle.isInverse && 'inverse',
    textStyle.fg && PALETTE_INDEX.test(textStyle.fg) && `f${textStyle.fg}`,
    textStyle.bg && PALETTE_INDEX.test(textStyle.bg) && `g${textStyle.bg}`,
  ]
    .filter(Boolean)
    .join(' ');
  const style: Record<string, string> = {};
  if (textStyle.fg && !PALETTE_INDEX.test(textStyle.fg)) style.color = textStyle.fg;
  if (textStyle.bg && !PALETTE_INDEX.test(textStyle.bg)) style.backgroundColor = textStyle.bg;
  return classes || style.color || style.backgroundColor ? (
    <span class={classes} style={style}>
      {inner}
    </span>
  ) : (
    <>{inner}</>
  );
}

function withMarks(text: string, at: number, ends: number[]) {
  const cuts = [at, ...ends.filter((end) => end > at && end < at + text.length), at + text.length];
  return cuts.slice(0, -1).map((cut, i) => {
    const part = withNamedControls(visible(text.slice(cut - at, cuts[i + 1]! - at)));
    const isMatch = ends.filter((end) => end <= cut).length % 2 === 1;
    return isMatch ? <mark key={cut}>{part}</mark> : part;
  });
}
