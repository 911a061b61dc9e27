// One line of a log on the page.
import { visible } from '../words';
import { type Look, pieces } from './colours';
import { named } from './controls';

const NAMED = /^\d+$/;

/** Of the characters that show, those from `from` to `to`. */
export function Line({ text, look, needle, from, to }: { text: string; look: Look | undefined; needle: string; from: number; to: number }) {
  const all = pieces(text, look ?? {}).pieces;
  const ends = needle ? borders(all.map((piece) => piece.text).join(''), needle) : [];
  let at = 0;
  return (
    <>
      {all.map((piece, i) => {
        const start = at;
        at += piece.text.length;
        const first = Math.max(start, from);
        const last = Math.min(at, to);
        return first < last && <Text key={i} text={piece.text.slice(first - start, last - start)} look={piece.look} at={first} ends={ends} />;
      })}
    </>
  );
}

/** Where matches begin and end by turns. A match may run through several colours. */
function borders(text: string, needle: string): number[] {
  const low = text.toLowerCase();
  const wanted = needle.toLowerCase();
  const found: number[] = [];
  for (let hit = low.indexOf(wanted); hit >= 0; hit = low.indexOf(wanted, hit + wanted.length)) found.push(hit, hit + wanted.length);
  return found;
}

function Text({ text, look, at, ends }: { text: string; look: Look; at: number; ends: number[] }) {
  const inner = ends.length ? marked(text, at, ends) : named(visible(text));
  const kinds = [
    look.isBold && 'bold', look.isDim && 'faint', look.isItalic && 'slant', look.isUnderlined && 'under', look.isInverse && 'inverse',
    look.fg && NAMED.test(look.fg) && `f${look.fg}`, look.bg && NAMED.test(look.bg) && `g${look.bg}`,
  ].filter(Boolean).join(' ');
  const style: Record<string, string> = {};
  if (look.fg && !NAMED.test(look.fg)) style.color = look.fg;
  if (look.bg && !NAMED.test(look.bg)) style.backgroundColor = look.bg;
  return kinds || style.color || style.backgroundColor ? <span class={kinds} style={style}>{inner}</span> : <>{inner}</>;
}

function marked(text: string, at: number, ends: number[]) {
  const cuts = [at, ...ends.filter((end) => end > at && end < at + text.length), at + text.length];
  return cuts.slice(0, -1).map((cut, i) => {
    const part = named(visible(text.slice(cut - at, cuts[i + 1]! - at)));
    const isMatch = ends.filter((end) => end <= cut).length % 2 === 1;
    return isMatch ? <mark key={cut}>{part}</mark> : part;
  });
}
