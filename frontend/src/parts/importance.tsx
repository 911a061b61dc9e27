// The importance of the parameters of a sweep, with the sentence that Python writes about it.
import { query } from '../api';
import type { Delta, Importance as ImportanceResponse } from '../types';
import { useChanges, useFetch } from '../use-fetch';
import { visible } from '../words';

/** How much of the ranking of the trials each parameter explains, and a sentence about the most important one. */
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
      <h3>Parameter importance for {visible(metric)}</h3>
      <p class="dim">{visible(data.explanation)}</p>
      <dl>
        {data.importance.slice(0, 8).map((one) => [
          <dt key={one.name} class="mono cut" title={visible(one.name)}>
            {visible(one.name)}
          </dt>,
          <dd
            key={`${one.name}=`}
            title={`explains ${one.score.toFixed(2)} of 1 of the ranking of ${one.n} trials (${one.method}); ${visible(metric)} ${trend[one.direction + 1]}`}
          >
            <span class="meter">
              <i class="use" style={{ width: `${100 * one.score}%` }} />
            </span>
            <span class="num">
              {one.score.toFixed(2)} {one.direction > 0 ? '↗' : one.direction < 0 ? '↘' : ''}
            </span>
          </dd>,
        ])}
      </dl>
    </div>
  );
}
