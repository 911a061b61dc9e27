// One line of a log.
import { withNamedControls } from './controls';
import type { Line as LogLine } from './window';

/** The characters of a line from index `from` to `to`. */
export function Line({
  line,
  needle,
  from,
  to,
}: {
  line: LogLine;
  needle: string;
  from: number;
  to: number;
}) {
  const ends = needle ? matchBorders(line.text, needle) : [];
  let at = 0;
  return (
    <>
      {line.spans.map(({ text, classes, color, background }, i) => {
        const start = at;
        at += text.length;
        const first = Math.max(start, from);
        const last = Math.min(at, to);
        if (first >= last) return null;
        const inner = withMarks(line.text.slice(first, last), first, ends);
        return classes || color || background ? (
          <span
            key={i}
            class={classes ?? ''}
            style={{ color: color ?? '', backgroundColor: background ?? '' }}
          >
            {inner}
          </span>
        ) : (
          inner
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

function withMarks(text: string, at: number, ends: number[]) {
  if (!ends.length) return withNamedControls(text);
  const cuts = [at, ...ends.filter((end) => end > at && end < at + text.length), at + text.length];
  return cuts.slice(0, -1).map((cut, i) => {
    const part = withNamedControls(text.slice(cut - at, cuts[i + 1]! - at));
    const isMatch = ends.filter((end) => end <= cut).length % 2 === 1;
    return isMatch ? <mark key={cut}>{part}</mark> : part;
  });
}
