// The range and the tick values of chart axes.

/** The range of an axis: the data with a margin; `least` is a lower bound for its upper end. */
export function span(
  low: number,
  high: number,
  options: { fromZero?: boolean; max?: number; least?: number },
): [number, number] {
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [
    options.fromZero ? Math.min(0, low) : low - room,
    options.max ?? Math.max(options.least ?? -Infinity, high + room),
  ];
}

/** The number of decimals that makes neighboring ticks distinct. */
export function digitsFor(marks: number[]): number | undefined {
  if (marks.length < 2) return undefined;
  return Math.max(0, Math.min(6, -Math.floor(Math.log10(marks[1]! - marks[0]!) + 1e-9)));
}

const SECONDS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
  172_800, 604_800,
];

/** About `wanted` round values between low and high; bytes are rounded in powers of 1024. */
export function ticks(low: number, high: number, wanted: number, unit?: string): number[] {
  if (!(high > low)) return [low];
  const unitSize =
    unit === 'bytes' ? 1024 ** Math.max(0, Math.floor(Math.log(high) / Math.log(1024))) : 1;
  const rough = (high - low) / unitSize / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((n) => n * power >= rough) ?? 10) * power * unitSize;
  return stepped(low, high, step, 0);
}

/** Ticks at full minutes, hours or days of the local time. */
export function timeTicks(low: number, high: number, wanted: number): number[] {
  const rough = (high - low) / Math.max(1, wanted);
  const step = SECONDS.find((n) => n >= rough) ?? 604_800 * Math.ceil(rough / 604_800);
  return stepped(low, high, step, new Date(low * 1000).getTimezoneOffset() * 60);
}

function stepped(low: number, high: number, step: number, offset: number): number[] {
  const found: number[] = [];
  for (
    let n = Math.ceil((low - offset) / step - 1e-9);
    n * step + offset <= high + step * 1e-9;
    n++
  ) {
    // Multiplied rather than summed up, since 0.1 + 0.2 is not 0.3.
    found.push(Number((n * step + offset).toPrecision(12)));
    if (found.length > 50) break;
  }
  return found;
}

export function timeText(at: number, span: number): string {
  const date = new Date(at * 1000);
  const two = (n: number) => String(n).padStart(2, '0');
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (span < 300) return `${time}:${two(date.getSeconds())}`;
  return span > 2 * 86_400 ? `${two(date.getMonth() + 1)}-${two(date.getDate())}` : time;
}
