// Splits a log line with SGR escape sequences into styled spans of text. Log text never becomes markup.

export interface TextStyle {
  fg?: string; // 0-15, or a CSS color
  bg?: string;
  isBold?: boolean;
  isDim?: boolean;
  isItalic?: boolean;
  isUnderlined?: boolean;
  isInverse?: boolean;
}

export interface StyledText {
  text: string;
  style: TextStyle;
}

const SGR = /\x1b\[([0-9;:]*)m/g;
export const withoutColors = (line: string) =>
  line.includes('\x1b') ? line.replace(SGR, '') : line;

/** The styled spans of a line, and the style at its end, which the next line starts with. */
export function styledSpans(
  line: string,
  style: TextStyle,
): { spans: StyledText[]; style: TextStyle } {
  if (!line.includes('\x1b')) return { spans: [{ text: line, style }], style };
  const spans: StyledText[] = [];
  let at = 0;
  for (const match of line.matchAll(SGR)) {
    if (match.index > at) spans.push({ text: line.slice(at, match.index), style });
    style = apply(style, match[1] ?? '');
    at = match.index + match[0].length;
  }
  if (at < line.length) spans.push({ text: line.slice(at), style });
  return { spans, style };
}

function apply(old: TextStyle, argument: string): TextStyle {
  let style: TextStyle = { ...old };
  const codes = argument.split(/[;:]/).map(Number);
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] ?? 0;
    if (code === 0) style = {};
    else if (code === 1) style.isBold = true;
    else if (code === 2) style.isDim = true;
    else if (code === 3) style.isItalic = true;
    else if (code === 4) style.isUnderlined = true;
    else if (code === 7) style.isInverse = true;
    else if (code === 22) style.isBold = style.isDim = false;
    else if (code === 23) style.isItalic = false;
    else if (code === 24) style.isUnderlined = false;
    else if (code === 27) style.isInverse = false;
    else if (code >= 30 && code <= 37) style.fg = String(code - 30);
    else if (code >= 90 && code <= 97) style.fg = String(code - 82);
    else if (code >= 40 && code <= 47) style.bg = String(code - 40);
    else if (code >= 100 && code <= 107) style.bg = String(code - 92);
    else if (code === 39) style.fg = undefined;
    else if (code === 49) style.bg = undefined;
    else if (code === 38 || code === 48) {
      const [color, used] = extended(codes, i + 1);
      i += used;
      if (code === 38) style.fg = color;
      else style.bg = color;
    }
  }
  return style;
}

function extended(codes: number[], at: number): [string | undefined, number] {
  const byte = (n: number | undefined) => Math.max(0, Math.min(255, n ?? 0));
  if (codes[at] === 2)
    return [`rgb(${byte(codes[at + 1])} ${byte(codes[at + 2])} ${byte(codes[at + 3])})`, 4];
  if (codes[at] !== 5) return [undefined, 1];
  const n = byte(codes[at + 1]);
  if (n < 16) return [String(n), 2];
  if (n >= 232)
    return [
      `rgb(${Array(3)
        .fill(8 + (n - 232) * 10)
        .join(' ')})`,
      2,
    ];
  const level = (x: number) => (x ? 55 + 40 * x : 0);
  const c = n - 16;
  return [`rgb(${level(Math.floor(c / 36))} ${level(Math.floor(c / 6) % 6)} ${level(c % 6)})`, 2];
}
