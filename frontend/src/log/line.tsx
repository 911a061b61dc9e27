// One line of a log on the page.
import type { ComponentChild } from 'preact';
import { type Look, pieces } from './colours';

const NAMED = /^\d+$/;

/** Of the characters that show, those from `from` to `to`. */
export function Line({ text, look, needle, from, to }: { text: string; look: Look | undefined; needle: string; from: number; to: number }) {
  let at = 0;
  return (
    <>
      {pieces(text, look ?? {}).pieces.map((piece, i) => {
        const cut = piece.text.slice(Math.max(0, from - at), Math.max(0, to - at));
        at += piece.text.length;
        return cut && <Text key={i} text={cut} look={piece.look} needle={needle} />;
      })}
    </>
  );
}

function Text({ text, look, needle }: { text: string; look: Look; needle: string }) {
  const inner = needle ? marked(text, needle) : text;
  const kinds = [
    look.isBold && 'bold', look.isDim && 'faint', look.isItalic && 'slant', look.isUnderlined && 'under', look.isInverse && 'inverse',
    look.fg && NAMED.test(look.fg) && `f${look.fg}`, look.bg && NAMED.test(look.bg) && `g${look.bg}`,
  ].filter(Boolean).join(' ');
  const style: Record<string, string> = {};
  if (look.fg && !NAMED.test(look.fg)) style.color = look.fg;
  if (look.bg && !NAMED.test(look.bg)) style.backgroundColor = look.bg;
  return kinds || style.color || style.backgroundColor ? <span class={kinds} style={style}>{inner}</span> : <>{inner}</>;
}

function marked(text: string, needle: string): ComponentChild[] {
  const low = text.toLowerCase();
  const wanted = needle.toLowerCase();
  const found: ComponentChild[] = [];
  let at = 0;
  for (let hit = low.indexOf(wanted); hit >= 0; hit = low.indexOf(wanted, at)) {
    if (hit > at) found.push(text.slice(at, hit));
    found.push(<mark>{text.slice(hit, hit + wanted.length)}</mark>);
    at = hit + wanted.length;
  }
  if (at < text.length) found.push(text.slice(at));
  return found;
}
