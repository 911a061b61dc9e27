// Renders a log as a simple terminal would show it: carriage returns overwrite the line, cursor-up
// returns to an earlier line (nested progress bars), colors are kept, and every other escape sequence
// is dropped. The rules are those of `stoker log` (src/stoker/core/formats/log_rendering.py).

const WINDOW = 60; // how many lines cursor-up can go back
const CONTROL = /[\x00-\x08\x0a-\x1f\x7f-\x9f]/g;
const CSI = /\x1b\[([0-?]{0,128}[ -/]{0,8})([@-~]?)/y;
const ESCAPE = /\x1b[ -/]{0,8}([0-~]?)/y;
const STRING_END = /[\x07\x18\x1a\x1b\n\x9c]/g;
const LAST_CHARACTER = /(?:\x1b\[[0-9;:]*m|[^\x1b])(?:\x1b\[[0-9;:]*m)*$/;

export class Terminal {
  /** Lines with text and color sequences only. */
  rows: string[] = [''];
  /** The index in the input at which each line starts. */
  starts: number[] = [0];
  private row = 0;
  private isAtLeft = true; // the next text overwrites the line
  private colors = '';
  private pending = '';
  private isInString = false;
  private fed = 0;

  feed(chunk: string): void {
    const text = this.pending + chunk;
    const base = this.fed - this.pending.length;
    this.fed += chunk.length;
    this.pending = '';
    let at = this.isInString ? this.skipString(text, 0) : 0;
    CONTROL.lastIndex = at;
    for (let found = CONTROL.exec(text); found; found = CONTROL.exec(text)) {
      if (found.index > at) this.put(text.slice(at, found.index));
      at = this.control(text, found.index, base);
      CONTROL.lastIndex = at;
    }
    if (at < text.length) this.put(text.slice(at));
  }

  private put(text: string): void {
    if (this.isAtLeft) {
      this.rows[this.row] = this.colors + text;
      this.colors = '';
      this.isAtLeft = false;
    } else {
      this.rows[this.row] += text;
    }
  }

  private control(text: string, at: number, base: number): number {
    const char = text[at];
    if (char === '\n') {
      this.keepColors();
      this.row += 1;
      if (this.row === this.rows.length) {
        this.rows.push('');
        this.starts.push(base + at + 1);
      }
      this.isAtLeft = true;
    } else if (char === '\r') {
      this.isAtLeft = true;
    } else if (char === '\b') {
      if (!this.isAtLeft)
        this.rows[this.row] = this.rows[this.row]!.replace(LAST_CHARACTER, (cut) =>
          cut.replace(/^[^\x1b]/, ''),
        );
    } else if (char === '\x1b') {
      return this.sequence(text, at);
    }
    return at + 1;
  }

  /** Color sequences at the start of a line without text belong to that line. */
  private keepColors(): void {
    if (this.colors) {
      this.rows[this.row] += this.colors;
      this.colors = '';
    }
  }

  private sequence(text: string, at: number): number {
    CSI.lastIndex = ESCAPE.lastIndex = at;
    const csi = CSI.exec(text);
    const found = csi ?? ESCAPE.exec(text)!;
    const end = at + found[0].length;
    const final = csi ? csi[2] : found[1];
    if (!final) {
      if (end === text.length) this.pending = text.slice(at);
      return end;
    }
    if (csi) this.move(csi[1] ?? '', final);
    else if (']PX^_'.includes(final) && end === at + 2) {
      this.isInString = true;
      return this.skipString(text, end);
    }
    return end;
  }

  private skipString(text: string, at: number): number {
    STRING_END.lastIndex = at;
    const found = STRING_END.exec(text);
    this.isInString = !found;
    return found ? found.index : text.length;
  }

  private move(argument: string, final: string): void {
    if (final === 'm') {
      if (!/^[0-9;:]*$/.test(argument)) return;
      if (this.isAtLeft) this.colors += `\x1b[${argument}m`;
      else this.rows[this.row] += `\x1b[${argument}m`;
    } else if (final === 'K') {
      if (argument !== '' && argument !== '0') this.isAtLeft = true;
      if (this.isAtLeft) this.rows[this.row] = '';
    } else if (argument && !/^\d+$/.test(argument)) {
      return;
    } else if (final === 'A' || final === 'F') {
      const lowest = Math.max(0, this.rows.length - 1 - WINDOW);
      this.enter(Math.max(lowest, this.row - Math.max(1, Number(argument || 1))));
    } else if (final === 'B' || final === 'E') {
      this.enter(Math.min(this.rows.length - 1, this.row + Math.max(1, Number(argument || 1))));
    } else if (final === 'G' && Number(argument || 1) <= 1) {
      this.isAtLeft = true;
    }
  }

  private enter(row: number): void {
    this.keepColors();
    this.row = row;
    this.isAtLeft = true;
  }
}

/** The lines of a text as written, with visible symbols for control characters. */
export function rawLines(text: string): string[] {
  return text
    .split('\n')
    .map((line) =>
      line.replace(/[\x00-\x08\x0b-\x1f\x7f]/g, (char) =>
        String.fromCharCode(char === '\x7f' ? 0x2421 : 0x2400 + char.charCodeAt(0)),
      ),
    );
}
