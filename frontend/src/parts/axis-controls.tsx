// The axes of a parallel-coordinates chart as a form: show, hide and move them, and choose their ranges
// without a mouse.
import { value } from '../format';
import { visible } from '../words';
import { type Axis, type Brush, type Brushes, isRange } from './parallel-axes';

const MOST_CHECKBOXES = 24;

export function AxisControls({
  axes,
  hidden,
  brushes,
  onBrushes,
  onAxes,
}: {
  axes: Axis[];
  hidden: string[];
  brushes: Brushes;
  onBrushes(brushes: Brushes): void;
  onAxes(names: string[]): void;
}) {
  const names = axes.map((axis) => axis.name);
  const set = (name: string, brush: Brush | null) => {
    const { [name]: _, ...others } = brushes;
    onBrushes(brush ? { ...others, [name]: brush } : others);
  };
  const move = (at: number, by: number) => {
    const next = [...names];
    const [name] = next.splice(at, 1);
    next.splice(at + by, 0, name!);
    onAxes(next);
  };
  return (
    <ul class="axes">
      {axes.map((axis, i) => (
        <li key={axis.name}>
          <span class="mono cut axis-name" title={visible(axis.name)}>
            {visible(axis.name)}
            {axis.isLog && <small class="dim"> log</small>}
          </span>
          <span class="axis-range">
            <Range axis={axis} brush={brushes[axis.name]} onBrush={(one) => set(axis.name, one)} />
          </span>
          <span class="axis-moves">
            <button
              type="button"
              class="icon"
              disabled={i === 0}
              aria-label={`Move ${visible(axis.name)} left`}
              onClick={() => move(i, -1)}
            >
              ←
            </button>
            <button
              type="button"
              class="icon"
              disabled={i === axes.length - 1}
              aria-label={`Move ${visible(axis.name)} right`}
              onClick={() => move(i, 1)}
            >
              →
            </button>
            <button
              type="button"
              class="icon"
              disabled={axes.length < 3}
              aria-label={`Hide ${visible(axis.name)}`}
              onClick={() => onAxes(names.filter((name) => name !== axis.name))}
            >
              ×
            </button>
          </span>
        </li>
      ))}
      {hidden.length > 0 && (
        <li class="axes-hidden">
          <span class="dim">Hidden:</span>
          {hidden.map((name) => (
            <button
              key={name}
              type="button"
              aria-label={`Show ${visible(name)}`}
              onClick={() => onAxes([...names, name])}
            >
              + {visible(name)}
            </button>
          ))}
        </li>
      )}
    </ul>
  );
}

function Range({
  axis,
  brush,
  onBrush,
}: {
  axis: Axis;
  brush: Brush | undefined;
  onBrush(brush: Brush | null): void;
}) {
  if (axis.isNumber) {
    const range = brush && isRange(brush) ? brush : { from: -Infinity, to: Infinity };
    const input = (end: 'from' | 'to', known: number) => (
      <input
        type="text"
        inputMode="decimal"
        class="num"
        aria-label={`${visible(axis.name)} ${end}`}
        placeholder={value(known)}
        value={Number.isFinite(range[end]) ? String(range[end]) : ''}
        onChange={(event) => {
          const text = event.currentTarget.value.trim();
          const number = Number(text);
          if (text && !Number.isFinite(number)) {
            event.currentTarget.value = '';
            return;
          }
          const next = { ...range, [end]: text ? number : end === 'from' ? -Infinity : Infinity };
          const isAll = next.from === -Infinity && next.to === Infinity;
          onBrush(isAll ? null : next);
        }}
      />
    );
    return (
      <>
        {input('from', axis.low)} <span class="dim">to</span> {input('to', axis.high)}
      </>
    );
  }
  if (axis.values.length > MOST_CHECKBOXES)
    return <span class="dim">{axis.values.length} values; drag along the axis</span>;
  const chosen = brush && !isRange(brush) ? brush.values.map(value) : null;
  return (
    <>
      {axis.values.map((one) => (
        <label key={value(one)} class="check">
          <input
            type="checkbox"
            checked={chosen === null || chosen.includes(value(one))}
            onChange={(event) => {
              const isOn = event.currentTarget.checked;
              const values = axis.values.filter((other) =>
                other === one ? isOn : chosen === null || chosen.includes(value(other)),
              );
              onBrush(values.length && values.length < axis.values.length ? { values } : null);
            }}
          />{' '}
          {value(one)}
        </label>
      ))}
    </>
  );
}
