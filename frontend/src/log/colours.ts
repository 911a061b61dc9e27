// Colours of a line as pieces of text with a look. Nothing of the log ever becomes markup.

export interface Look {
  fg?: string; // 0-15, or a CSS colour
  bg?: string;
  isBold?: boolean;
  isDim?: boolean;
  isItalic?: boolean;
  isUnderlined?: boolean;
  isInverse?: boolean;
}

export interface Piece {
  text: string;
  look: Look;
}

const SGR = /\x1b\[([0-9;:]*)m/g;
export const withoutColours = (line: string) => (line.includes('\x1b') ? line.replace(SGR, '') : line);

/** The pieces of a line, and the look that the next one begins with. */
export function pieces(line: string, look: Look): { pieces: Piece[]; look: Look } {
  if (!line.includes('\x1b')) return { pieces: [{ text: line, look }], look };
  const found: Piece[] = [];
  let at = 0;
  for (const match of line.matchAll(SGR)) {
    if (match.index > at) found.push({ text: line.slice(at, match.index), look });
    look = apply(look, match[1] ?? '');
    at = match.index + match[0].length;
  }
  if (at < line.length) found.push({ text: line.slice(at), look });
  return { pieces: found, look };
}

function apply(old: Look, argument: string): Look {
  let look = { ...old };
  const codes = argument.split(/[;:]/).map(Number);
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] ?? 0;
    if (code === 0) look = {};
    else if (code === 1) look.isBold = true;
    else if (code === 2) look.isDim = true;
    else if (code === 3) look.isItalic = true;
    else if (code === 4) look.isUnderlined = true;
    else if (code === 7) look.isInverse = true;
    else if (code === 22) look.isBold = look.isDim = false;
    else if (code === 23) look.isItalic = false;
    else if (code === 24) look.isUnderlined = false;
    else if (code === 27) look.isInverse = false;
    else if (code >= 30 && code <= 37) look.fg = String(code - 30);
    else if (code >= 90 && code <= 97) look.fg = String(code - 82);
    else if (code >= 40 && code <= 47) look.bg = String(code - 40);
    else if (code >= 100 && code <= 107) look.bg = String(code - 92);
    else if (code === 39) look.fg = undefined;
    else if (code === 49) look.bg = undefined;
    else if (code === 38 || code === 48) {
      const [colour, used] = extended(codes, i + 1);
      i += used;
      if (code === 38) look.fg = colour;
      else look.bg = colour;
    }
  }
  return look;
}

function extended(codes: number[], at: number): [string | undefined, number] {
  const byte = (n: number | undefined) => Math.max(0, Math.min(255, n ?? 0));
  if (codes[at] === 2) return [`rgb(${byte(codes[at + 1])} ${byte(codes[at + 2])} ${byte(codes[at + 3])})`, 4];
  if (codes[at] !== 5) return [undefined, 1];
  const n = byte(codes[at + 1]);
  if (n < 16) return [String(n), 2];
  if (n >= 232) return [`rgb(${Array(3).fill(8 + (n - 232) * 10).join(' ')})`, 2];
  const level = (x: number) => (x ? 55 + 40 * x : 0);
  const c = n - 16;
  return [`rgb(${level(Math.floor(c / 36))} ${level(Math.floor(c / 6) % 6)} ${level(c % 6)})`, 2];
}
