// The settings of a grid of charts.
import { useEffect, useRef, useState } from 'preact/hooks';
import { Tabs } from '../parts/bits';
import { isPhone } from '../theme';
import { visible } from '../words';
import { type Layout, groupNames } from './layout';

interface Props {
  layout: Layout;
  /** All reported metrics, and those that have a chart. */
  metrics: string[];
  shown: string[];
  /** The parameters to group by. */
  groups: string[];
  onChange(changed: Partial<Layout>): void;
}

export function CurveTools({ layout, metrics, shown, groups, onChange }: Props) {
  const options = [...new Set([...groups, ...groupNames(layout.group)])];
  const [isOpen, setOpen] = useState(false); // on a phone, most settings are collapsed
  const hasAll = isOpen || !isPhone.value;
  return (
    <div class="curve-tools" role="group" aria-label="Settings of the charts">
      <MetricMenu
        metrics={metrics}
        shown={shown}
        onPick={(names) => onChange({ metrics: names })}
      />
      <Tabs
        label="X axis"
        value={layout.x}
        options={[
          { value: 'step', label: 'Steps' },
          { value: 'time', label: 'Time' },
        ]}
        onPick={(x) => onChange({ x, zoom: null })}
      />
      {isPhone.value && (
        <button aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          Options
        </button>
      )}
      {hasAll && <MoreTools layout={layout} options={options} onChange={onChange} />}
      {shown.length > 1 && !isPhone.value && (
        <span class="pair">
          <span>Columns</span>
          <Tabs
            label="Columns"
            value={String(layout.columns)}
            options={['1', '2', '3'].map((n) => ({ value: n, label: n }))}
            onPick={(n) => onChange({ columns: Number(n) === layout.columns ? 0 : Number(n) })}
          />
        </span>
      )}
    </div>
  );
}

function MoreTools({
  layout,
  options,
  onChange,
}: {
  layout: Layout;
  options: string[];
  onChange(changed: Partial<Layout>): void;
}) {
  return (
    <>
      <label class="check">
        <input
          type="checkbox"
          checked={layout.isLogX}
          onChange={(event) => onChange({ isLogX: event.currentTarget.checked })}
        />{' '}
        Log x
      </label>
      <Smoothing value={layout.smooth} onChange={(smooth) => onChange({ smooth })} />
      {options.length > 0 && (
        <GroupBy
          names={groupNames(layout.group)}
          options={options}
          onChange={(names) => onChange({ group: names.join(','), hidden: [], marked: '' })}
        />
      )}
    </>
  );
}

/** One parameter, or two: “which learning rate is best, and is it for both datasets?” */
function GroupBy({
  names: [first = '', second = ''],
  options,
  onChange,
}: {
  names: string[];
  options: string[];
  onChange(names: string[]): void;
}) {
  const pick = (label: string, now: string, others: string[], set: (name: string) => void) => (
    <select aria-label={label} value={now} onChange={(event) => set(event.currentTarget.value)}>
      <option value="">none</option>
      {others.map((name) => (
        <option key={name} value={name}>
          {visible(name)}
        </option>
      ))}
    </select>
  );
  const rest = options.filter((name) => name !== first);
  return (
    <span class="pair">
      <span>Group by</span>
      {pick('Group by', first, options, (name) =>
        onChange([name, name === second ? '' : second].filter(Boolean)),
      )}
      {first && rest.length > 0 && (
        <>
          <span>and</span>
          {pick('Group also by', second, rest, (name) => onChange([first, name].filter(Boolean)))}
        </>
      )}
    </span>
  );
}

const SLIDER_MS = 120; // the server smooths; it is not asked for every step of the slider

function Smoothing({ value, onChange }: { value: number; onChange(smooth: number): void }) {
  const [now, setNow] = useState(value);
  const timer = useRef(0);
  useEffect(() => setNow(value), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <label class="pair">
      <span>Smoothing</span>
      <input
        type="range"
        min="0"
        max="0.99"
        step="0.01"
        value={now}
        aria-valuetext={now ? now.toFixed(2) : 'none'}
        onInput={(event) => {
          const next = Number(event.currentTarget.value);
          setNow(next);
          clearTimeout(timer.current);
          timer.current = window.setTimeout(() => onChange(next), SLIDER_MS);
        }}
      />
      <output class="num">{now.toFixed(2)}</output>
    </label>
  );
}

const FILTERED = 10; // metrics; a longer list has a field to filter it

function MetricMenu({
  metrics,
  shown,
  onPick,
}: {
  metrics: string[];
  shown: string[];
  onPick(names: string[]): void;
}) {
  const menu = useRef<HTMLDetailsElement>(null);
  const [isOpen, setOpen] = useState(false);
  const [text, setText] = useState('');
  useEffect(() => {
    if (!isOpen) return;
    const onDown = (event: Event) => {
      if (!menu.current?.contains(event.target as Node)) menu.current!.open = false;
    };
    addEventListener('pointerdown', onDown);
    return () => removeEventListener('pointerdown', onDown);
  }, [isOpen]);
  const all = [...new Set([...metrics, ...shown])];
  const found = all.filter((name) => name.toLowerCase().includes(text.toLowerCase()));
  const toggle = (name: string) =>
    onPick(shown.includes(name) ? shown.filter((one) => one !== name) : [...shown, name]);
  return (
    <details
      ref={menu}
      class="menu"
      onToggle={(event) => setOpen(event.currentTarget.open)}
      onKeyDown={(event) => {
        if (event.key !== 'Escape' || !menu.current?.open) return;
        event.preventDefault();
        menu.current.open = false;
        menu.current.querySelector('summary')?.focus();
      }}
    >
      <summary class="button">
        Charts{' '}
        <span class="dim num">
          {shown.length} of {all.length}
        </span>
      </summary>
      <div class="menu-body">
        {all.length > FILTERED && (
          <input
            type="search"
            placeholder="Find a metric"
            aria-label="Find a metric"
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        )}
        <ul>
          {found.map((name) => (
            <li key={name}>
              <label class="check">
                <input
                  type="checkbox"
                  checked={shown.includes(name)}
                  disabled={shown.length === 1 && shown[0] === name}
                  onChange={() => toggle(name)}
                />{' '}
                <span class="mono">{visible(name)}</span>
              </label>
            </li>
          ))}
          {!found.length && <li class="dim">No metrics</li>}
        </ul>
      </div>
    </details>
  );
}
