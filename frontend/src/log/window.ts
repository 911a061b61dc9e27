// The loaded part of a log: lines as the server renders them, one range that starts at the end of the
// log (or at a match) and grows in both directions as the user scrolls.
import { get, query } from '../api';
import type { LogPart } from '../types';

const FIRST_BYTES = 64 * 1024;
const MORE_BYTES = 256 * 1024;
const MAX_CHARACTERS = 6_000_000; // beyond this, lines at the far end are dropped
const PER_LINE = 64; // what a line costs besides its text

export interface Line {
  /** The byte offset of its start. */
  at: number;
  text: string;
  spans: LogPart['lines'][number]['spans'];
}

const withText = ({ lines }: LogPart): Line[] =>
  lines.map(({ at, spans }) => ({ at, spans, text: spans.map((span) => span.text).join('') }));
const weight = (line: Line) => line.text.length + PER_LINE;

export class LogWindow {
  lines: Line[] = [];
  from = 0;
  to = 0;
  size = 0;
  isOver = false;
  attempt = 0;
  isRaw = false;
  /** Incremented on every change of the lines; 0 until the first load. */
  version = 0;
  private start = 0; // where the server's rendering of the last lines started
  private opened = 0; // a response to a request before the last opening is ignored

  constructor(
    private readonly job: number,
    private readonly wanted: { attempt: number | null; stream: string },
  ) {}

  private fetchPart(range: Record<string, number>, stop?: AbortSignal): Promise<LogPart> {
    const stream = this.wanted.stream === 'stderr' ? 'stderr' : null;
    const raw = this.isRaw ? 1 : null;
    const { attempt } = this.wanted;
    return get<LogPart>(
      `/api/jobs/${this.job}/log${query({ attempt, stream, raw, ...range })}`,
      stop,
    );
  }

  get isAtEnd(): boolean {
    return this.to >= this.size;
  }

  async openTail(stop?: AbortSignal): Promise<void> {
    await this.open({ tail: FIRST_BYTES }, stop);
  }

  /** Load the surroundings of a byte; returns the index of the line that contains it. */
  async openAt(byte: number, stop?: AbortSignal): Promise<number> {
    const part = await this.open({ match: byte, tail: FIRST_BYTES }, stop);
    return this.lines.findIndex((line) => line.at === part.match);
  }

  /** Load what follows, which can change the last lines; returns whether there was anything. */
  async extend(stop?: AbortSignal): Promise<boolean> {
    const range = { start: this.start, from: this.to, to: this.to + MORE_BYTES };
    const opened = this.opened;
    const part = await this.fetchPart(range, stop);
    if (opened !== this.opened || this.to !== range.from) return false;
    if (part.attempt !== this.attempt || part.size < this.to) {
      await this.openTail(stop); // another attempt started, or the file was truncated
      return true;
    }
    const isNew = part.to > this.to;
    this.size = part.size;
    this.isOver = part.is_over;
    this.start = part.start;
    this.to = part.to;
    if (!isNew) return false;
    let kept = this.lines.length;
    while (kept && this.lines[kept - 1]!.at >= part.from) kept -= 1;
    this.lines = [...this.lines.slice(0, kept), ...withText(part)];
    this.version += 1;
    const dropped = this.lines.length - this.fitting([...this.lines].reverse());
    if (dropped) {
      this.lines = this.lines.slice(dropped);
      this.from = this.lines[0]!.at;
    }
    return true;
  }

  /** Load earlier lines; returns whether there were any bytes before. */
  async extendUp(stop?: AbortSignal): Promise<boolean> {
    if (this.from === 0) return false;
    const { opened, from } = this;
    const part = await this.fetchPart({ to: from, tail: MORE_BYTES }, stop);
    if (opened !== this.opened || this.from !== from || part.from >= from) return false;
    this.from = part.from;
    this.lines = [...withText(part), ...this.lines];
    const kept = this.fitting(this.lines);
    if (kept < this.lines.length) {
      this.start = this.to = this.lines[kept]!.at;
      this.lines = this.lines.slice(0, kept);
    }
    this.version += 1;
    return true;
  }

  /** How many of the lines are kept: all, or as many as fill half of the space. */
  private fitting(lines: Line[]): number {
    let left = MAX_CHARACTERS;
    if (lines.every((line) => (left -= weight(line)) >= 0)) return lines.length;
    left = MAX_CHARACTERS / 2;
    return Math.max(
      1,
      lines.findIndex((line) => (left -= weight(line)) < 0),
    );
  }

  private async open(range: Record<string, number>, stop?: AbortSignal): Promise<LogPart> {
    const opened = ++this.opened;
    const part = await this.fetchPart(range, stop);
    if (opened !== this.opened) return part;
    this.start = part.start;
    this.from = part.from;
    this.to = part.to;
    this.size = part.size;
    this.isOver = part.is_over;
    this.attempt = part.attempt;
    this.lines = withText(part);
    this.version += 1;
    return part;
  }
}
