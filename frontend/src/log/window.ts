// The loaded part of a log: one range of bytes that starts at the end of the log (or at a match) and
// grows in both directions as the user scrolls.
import { get, query } from '../api';
import { bytes } from '../format';
import type { LogPart } from '../types';
import { type TextStyle, styledSpans } from './colours';
import { Terminal, rawLines } from './terminal';

const FIRST_BYTES = 64 * 1024;
const MORE_BYTES = 256 * 1024;
const MAX_BYTES = 6 * 1024 * 1024; // beyond this, the far end is dropped

const dropped = (size: number) => `\n... ${bytes(size)} dropped ...\n`;

export interface Lines {
  rows: string[];
  /** The style that a line starts with, where it is not the default. */
  styles: Map<number, TextStyle>;
  starts: number[];
}

export class LogWindow {
  from = 0;
  to = 0;
  size = 0;
  isOver = false;
  attempt = 0;
  /** Incremented on every change of the lines; 0 until the first load. */
  version = 0;
  private parts: { text: string; from: number; to: number }[] = [];
  private terminal = new Terminal();
  private cache: { key: string; lines: Lines } | null = null;

  constructor(
    private readonly job: number,
    private readonly wanted: { attempt: number | null; stream: string },
  ) {}

  private fetchPart(range: Record<string, number>, stop?: AbortSignal): Promise<LogPart> {
    const stream = this.wanted.stream === 'stderr' ? 'stderr' : null;
    return get<LogPart>(
      `/api/jobs/${this.job}/log${query({ attempt: this.wanted.attempt, stream, ...range })}`,
      stop,
    );
  }

  get isAtEnd(): boolean {
    return this.to >= this.size;
  }

  async openTail(stop?: AbortSignal): Promise<void> {
    this.reset([await this.fetchPart({ tail: FIRST_BYTES }, stop)]);
  }

  /** Load the surroundings of a byte; returns the line that contains it. */
  async openAt(byte: number, stop?: AbortSignal): Promise<number> {
    const start = Math.max(0, byte - FIRST_BYTES);
    const before = start < byte ? await this.fetchPart({ from: start, to: byte }, stop) : null;
    const after = await this.fetchPart({ from: byte, to: byte + MORE_BYTES }, stop);
    this.reset(before ? [before, after] : [after]);
    return this.lineAt(before?.text.length ?? 0);
  }

  /** Load new bytes at the end; returns whether there were any. */
  async extend(stop?: AbortSignal): Promise<boolean> {
    const part = await this.fetchPart({ from: this.to, to: this.to + MORE_BYTES }, stop);
    if (part.attempt !== this.attempt || part.size < this.to) {
      await this.openTail(stop); // another attempt started, or the file was truncated
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
    if (this.to - this.from > MAX_BYTES) this.dropStart();
    return true;
  }

  /** Load earlier bytes; returns whether there were any. */
  async extendUp(stop?: AbortSignal): Promise<boolean> {
    if (this.from === 0) return false;
    const start = Math.max(0, this.from - MORE_BYTES);
    const part = await this.fetchPart({ from: start, to: this.from }, stop);
    // Up to 3 bytes are missing when `start` is inside a character. More are missing when the middle of
    // the log was dropped.
    const hole = part.from > start + 3 ? part.from - start : 0;
    const after = Math.max(0, this.from - part.to);
    const text =
      (hole ? dropped(hole) : '') + part.text + (part.text && after ? dropped(after) : '');
    const from = hole ? start : part.from;
    this.parts.unshift({ text, from, to: this.from });
    this.from = from;
    while (this.to - this.from > MAX_BYTES && this.parts.length > 1)
      this.to = this.parts.pop()!.from;
    this.rebuild();
    return true;
  }

  lines(isRaw: boolean): Lines {
    const key = `${this.version} ${isRaw}`;
    if (this.cache?.key !== key) this.cache = { key, lines: isRaw ? this.raw() : this.rendered() };
    return this.cache.lines;
  }

  lineAt(offset: number, starts = this.terminal.starts): number {
    let low = 0;
    for (let high = starts.length - 1; low < high;) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle]! <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  private reset(parts: LogPart[]): void {
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

  private dropStart(): void {
    while (this.to - this.from > MAX_BYTES / 2 && this.parts.length > 1)
      this.from = this.parts.shift()!.to;
    this.rebuild();
  }

  private rebuild(): void {
    this.terminal = new Terminal();
    for (const part of this.parts) this.terminal.feed(part.text);
    this.version += 1;
  }

  private raw(): Lines {
    const rows = rawLines(this.parts.map((part) => part.text).join(''));
    return { rows, styles: new Map(), starts: [] };
  }

  private rendered(): Lines {
    const { rows, starts } = this.terminal;
    const styles = new Map<number, TextStyle>();
    let style: TextStyle = {};
    let isPlain = true;
    for (let i = 0; i < rows.length; i++) {
      if (!isPlain) styles.set(i, style);
      if (!rows[i]!.includes('\x1b')) continue;
      style = styledSpans(rows[i]!, style).style;
      isPlain = !Object.values(style).some(Boolean);
    }
    const isEmptyEnd = rows.length > 1 && rows[rows.length - 1] === '';
    return { rows: isEmptyEnd ? rows.slice(0, -1) : rows, styles, starts };
  }
}
