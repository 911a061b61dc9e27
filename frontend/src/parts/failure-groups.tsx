// Failures in groups: "5,000 failed alike: out of GPU memory", one row for each, above a table.
import { useState } from 'preact/hooks';
import { count } from '../format';
import { jobHref } from '../route';
import type { FailureGroup } from '../types';
import { visible } from '../words';
import { Badge } from './bits';
import type { State } from '../types';

const SHOWN = 3;

interface Props {
  groups: FailureGroup[];
  where: string;
  onWhere(where: string): void;
}

const both = (where: string, more: string) => (where ? `(${where}) and (${more})` : more);

export function FailureGroups({ groups, where, onWhere }: Props) {
  const [isAll, setAll] = useState(false);
  const alike = groups.filter((one) => one.size > 1);
  if (!alike.length) return null;
  const shown = isAll ? alike : alike.slice(0, SHOWN);
  return (
    <ul class="failure-groups" aria-label="Failures">
      {shown.map((one) => {
        const isChosen = where.includes(one.where) && !where.includes(`not (${one.where})`);
        return (
          <li key={one.where}>
            <Badge state={one.state as State} hasText={false} />
            <span class="cut" title={visible(one.result)}>
              <b class="num">{count(one.size)}</b>{' '}
              {one.state === 'lost' ? 'were lost alike' : 'failed alike'}:{' '}
              <span class="bad-ink">{visible(one.result)}</span>
            </span>
            <span class="grow" />
            {one.job !== null && <a href={jobHref(one.job)}>Open one</a>}
            {isChosen ? (
              <button class="link" onClick={() => onWhere('')}>
                Show all
              </button>
            ) : (
              <>
                <button class="link" onClick={() => onWhere(both(where, one.where))}>
                  Show only these
                </button>
                <button class="link" onClick={() => onWhere(both(where, `not (${one.where})`))}>
                  Hide
                </button>
              </>
            )}
          </li>
        );
      })}
      {alike.length > SHOWN && (
        <li>
          <button class="link" aria-expanded={isAll} onClick={() => setAll(!isAll)}>
            {isAll ? 'Show fewer groups' : `Show ${count(alike.length - SHOWN)} more groups`}
          </button>
        </li>
      )}
    </ul>
  );
}
