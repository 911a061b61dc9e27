// Learning curves and parameter importance of a sweep.
import { query } from '../api';
import { plural } from '../format';
import { Empty, Failed, Loading, Section } from '../parts/bits';
import { Chart, type Line } from '../parts/chart';
import type { Ranks } from '../parts/ranks';
import type { Delta, Importance as ImportanceResponse, SweepCurves } from '../types';
import { useChanges, useFetch } from '../use-fetch';
import { visible } from '../words';

const CURVES = 50;

/** The curves of the best trials, with the colors and the selection of the parallel-coordinates chart. */
export function LearningCurves({
  base,
  metric,
  ranks,
  trials,
  concerns,
}: {
  base: string;
  metric: string;
  ranks: Ranks;
  trials: Set<number> | null;
  concerns(delta: Delta): boolean;
}) {
  const { data, error, reload } = useFetch<SweepCurves>(
    `${base}/curves${query({ metric, limit: CURVES, points: 200 })}`,
  );
  useChanges(concerns, reload, 4000);
  const all = (data?.curves ?? []).filter((one) => one.points.length > 1);
  const selected = trials ? all.filter((one) => trials.has(one.trial)) : all;
  // Draw trials without a rank first, then from worst to best, so that the best is on top.
  const curves = selected.sort((a, b) => (ranks.get(b.trial) ?? 2) - (ranks.get(a.trial) ?? 2));
  const lines: Line[] = curves.map((one) => {
    const rank = ranks.get(one.trial) ?? null;
    return { label: `#${one.trial}`, points: one.points, shade: rank, isDashed: rank === null };
  });
  const note = `${visible(metric)}, ${all.length === CURVES ? `best ${CURVES} trials` : plural(all.length, 'trial')}`;
  return (
    <Section
      title="Learning curves"
      note={!all.length ? undefined : trials ? `${lines.length} of ${note}` : note}
    >
      {error && !data ? (
        <Failed error={error} retry={reload} />
      ) : !data ? (
        <Loading rows={4} />
      ) : lines.length ? (
        <Chart label={`${metric} of each trial over steps`} lines={lines} height={330} />
      ) : all.length ? (
        <Empty title="No curves in the selected ranges" />
      ) : (
        <Empty title="No curves yet">{`Trials that report ${visible(metric)} at least twice appear here.`}</Empty>
      )}
    </Section>
  );
}

/** How much of the ranking of the trials each parameter explains. */
export function Importance({
  base,
  metric,
  isEnabled,
  concerns,
}: {
  base: string;
  metric: string;
  isEnabled: boolean;
  concerns(delta: Delta): boolean;
}) {
  const { data, reload } = useFetch<ImportanceResponse>(
    isEnabled ? `${base}/importance${query({ metric })}` : null,
  );
  useChanges(concerns, reload, 5000);
  if (!data?.importance.length) return null;
  const trend = ['decreases as it grows', 'has no clear trend', 'increases as it grows'];
  return (
    <div class="importance">
      <h3>
        Parameter importance for {visible(metric)}{' '}
        <span class="dim">share of the ranking that each parameter explains alone</span>
      </h3>
      <dl>
        {data.importance.slice(0, 8).map((one) => [
          <dt key={one.name} class="mono cut" title={visible(one.name)}>
            {visible(one.name)}
          </dt>,
          <dd
            key={`${one.name}=`}
            title={`explains ${(100 * one.score).toFixed(0)}% of the ranking of ${one.n} trials; ${visible(metric)} ${trend[one.direction + 1]}`}
          >
            <span class="meter">
              <i class="use" style={{ width: `${100 * one.score}%` }} />
            </span>
            <span class="num">
              {(100 * one.score).toFixed(0)}%{' '}
              {one.direction > 0 ? '↗' : one.direction < 0 ? '↘' : ''}
            </span>
          </dd>,
        ])}
      </dl>
    </div>
  );
}
