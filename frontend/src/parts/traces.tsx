// Usage charts: one small chart per quantity, with the latest value in its heading.
import type { Traces } from '../types';
import { inUnit } from './axis';
import { SmallChart } from './line-chart';

const NAMES: Record<string, string> = {
  gpu_use: 'GPU utilization',
  gpu_memory: 'GPU memory',
  power: 'Power',
  temperature: 'Temperature',
  cpu: 'CPU',
  memory: 'Memory',
};
const ORDER = Object.keys(NAMES);
const isPercent = (unit: string) => unit === 'percent' || unit === '%';

export function TraceCharts({
  series,
  height = 96,
  max = {},
}: {
  series: Traces;
  height?: number;
  max?: Record<string, number | null>;
}) {
  const place = (name: string) => (ORDER.includes(name) ? ORDER.indexOf(name) : 99);
  const names = Object.keys(series)
    .filter((name) => series[name]!.points.length)
    .sort((a, b) => place(a) - place(b));
  return (
    <div class="charts">
      {names.map((name) => {
        const { unit, points } = series[name]!;
        const last = points.findLast((point) => point[1] !== null);
        const label = NAMES[name] ?? name;
        return (
          <figure key={name}>
            <figcaption>
              {label} <span class="num dim">{inUnit(unit, last?.[1])}</span>
            </figcaption>
            {/* CPU usage of several cores exceeds 100%; its axis shows at least one full core. */}
            <SmallChart
              label={`${label} over time`}
              points={points}
              xUnit="clock"
              yUnit={unit}
              height={height}
              limits={{
                fromZero: true,
                max: max[name] ?? (isPercent(unit) && name !== 'cpu' ? 100 : undefined),
                least: name === 'cpu' ? 100 : undefined,
              }}
            />
          </figure>
        );
      })}
    </div>
  );
}
