// The curves of a sweep. They are requested before anything else of the screen is known.
import { useCallback, useMemo } from 'preact/hooks';
import { CurveGrid } from '../curves/grid';
import type { CurveLine } from '../curves/types';
import type { Delta } from '../types';

const MAX_TRIALS = 400; // of a filter; with more, the curves of the best trials are filtered

export function SweepCurves({
  name,
  params,
  trials,
  concerns,
}: {
  name: string;
  params: string[];
  /** The trials that a filter leaves; null: no filter. */
  trials: number[] | null;
  concerns(delta: Delta): boolean;
}) {
  const chosen = useMemo(() => trials && new Set(trials), [trials]);
  const isShown = useCallback(
    (line: CurveLine) => chosen === null || (line.trial !== null && chosen.has(line.trial)),
    [chosen],
  );
  const isNamed = trials !== null && trials.length > 0 && trials.length <= MAX_TRIALS;
  const runs = isNamed ? trials.map((trial) => `${name}/${trial}`) : [name];
  return (
    <CurveGrid
      runs={runs}
      remember={name}
      order={null}
      groups={params}
      isShown={isShown}
      groupNote={
        trials !== null && !isNamed
          ? `The groups are of all trials: a filter applies to them only if it leaves 1 to ${MAX_TRIALS} trials.`
          : undefined
      }
      concerns={concerns}
    />
  );
}
