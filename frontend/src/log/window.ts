// The part of a log that is held here: one stretch of bytes, begun at the end (or where something
// was found) and grown in both directions as somebody reads.
import { get, query } from '../api';
import { bytes } from '../format';
import type { LogPart } from '../types';
import { type Look, pieces } from './colours';
import { Terminal, rawLines } from './terminal';

const FIRST = 64 * 1024;
const MORE = 256 * 1024;
const MOST = 6 * 1024 * 1024; // beyond this, the far end is let go

const dropped = (size: number) => `\n... ${bytes(size)} dropped ...\n`;

export interface Lines {
  rows: string[];
  /** The colours that a line begins with, where it is not plain. */
  looks: Map<number, Look>;
  starts: number[];
}

export class LogWindow {
  from = 0;
  to = 0;
  size = 0;
  isOver = false;
  attempt = 0;
  /** Changes whenever lines did. */
  version = 0;
  private parts: { text: string; from: number; to: number }[] = [];
  private terminal = new Terminal();
  private cache: { key: string; lines: Lines } | null = null;

  constructor(private readonly job: number, private readonly wanted: { attempt: number | null; stream: string }) {}

  private ask(range: Record<string, number>, stop?: AbortSignal): Promise<LogPart> {
    const stream = this.wanted.stream === 'stderr' ? 'stderr' : null;
    return get<LogPart>(`/api/jobs/${this.job}/log${query({ attempt: this.wanted.attempt, stream, ...range })}`, stop);
  }

  get isAtEnd(): boolean {
    return this.to >= this.size;
  }

  async openTail(stop?: AbortSignal): Promise<void> {
    this.begin([await this.ask({ tail: FIRST }, stop)]);
  }

  /** Around a byte; gives the line it is in. */
  async openAt(byte: number, stop?: AbortSignal): Promise<number> {
    const start = Math.max(0, byte - FIRST);
    const before = start < byte ? await this.ask({ from: start, to: byte }, stop) : null;
    const after = await this.ask({ from: byte, to: byte + MORE }, stop);
    this.begin(before ? [before, after] : [after]);
    return this.lineAt(before?.text.length ?? 0);
  }

  /** New bytes at the end; true when there were some. */
  async extend(stop?: AbortSignal): Promise<boolean> {
    const part = await this.ask({ from: this.to, to: this.to + MORE }, stop);
    if (part.attempt !== this.attempt || part.size < this.to) {
      await this.openTail(stop); // another attempt began, or the file was cut
      return true;
    }
    this.size = part.size;
    this.isOver = part.is_over;
    if (!part.text) return false;
    const text = (part.from > this.to + 3 ? dropped(part.from - this.to) : '') + part.text;
    this.to = part.to;
    this.parts.push({ text, from: part.from, to: part.to });
    this.terminal.feed(text);
    this.version += 1;
    if (this.to - this.from > MOST) this.forget();
    return true;
  }

  /** Earlier bytes; true when there were some. */
  async extendUp(stop?: AbortSignal): Promise<boolean> {
    if (this.from === 0) return false;
    const start = Math.max(0, this.from - MORE);
    const part = await this.ask({ from: start, to: this.from }, stop);
    // A few bytes later than asked for: a character began before. Many: the middle was dropped.
    const hole = part.from > start + 3 ? part.from - start : 0;
    const after = Math.max(0, this.from - part.to);
    const text = (hole ? dropped(hole) : '') + part.text + (part.text && after ? dropped(after) : '');
    const from = hole ? start : part.from;
    this.parts.unshift({ text, from, to: this.from });
    this.from = from;
    while (this.to - this.from > MOST && this.parts.length > 1) this.to = this.parts.pop()!.from;
    this.rebuild();
    return true;
  }

  lines(isRaw: boolean): Lines {
    const key = `${this.version} ${isRaw}`;
    if (this.cache?.key !== key) this.cache = { key, lines: isRaw ? this.raw() : this.collapsed() };
    return this.cache.lines;
  }

  lineAt(offset: number, starts = this.terminal.starts): number {
    let low = 0;
    for (let high = starts.length - 1; low < high; ) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle]! <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  private begin(parts: LogPart[]): void {
    const first = parts[0]!;
    const last = parts[parts.length - 1]!;
    this.from = first.from;
    this.to = last.to;
    this.size = last.size;
    this.isOver = last.is_over;
    this.attempt = last.attempt;
    this.parts = parts.map(({ text, from, to }) => ({ text, from, to }));
    this.rebuild();
  }

  private forget(): void {
    while (this.to - this.from > MOST / 2 && this.parts.length > 1) this.from = this.parts.shift()!.to;
    this.rebuild();
  }

  private rebuild(): void {
    this.terminal = new Terminal();
    for (const part of this.parts) this.terminal.feed(part.text);
    this.version += 1;
  }

  private raw(): Lines {
    const rows = rawLines(this.parts.map((part) => part.text).join(''));
    return { rows, looks: new Map(), starts: [] };
  }

  private collapsed(): Lines {
    const { rows, starts } = this.terminal;
    const looks = new Map<number, Look>();
    let look: Look = {};
    let isPlain = true;
    for (let i = 0; i < rows.length; i++) {
      if (!isPlain) looks.set(i, look);
      if (!rows[i]!.includes('\x1b')) continue;
      look = pieces(rows[i]!, look).look;
      isPlain = !Object.values(look).some(Boolean);
    }
    const isEmptyEnd = rows.length > 1 && rows[rows.length - 1] === '';
    return { rows: isEmptyEnd ? rows.slice(0, -1) : rows, looks, starts };
  }
}
