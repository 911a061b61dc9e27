// What a GPU did in the chosen time, and why no job ran on it while jobs waited.
import { duration } from '../format';
import type { GpuHistory } from '../types';
import { visible } from '../words';

type OneHistory = GpuHistory['gpus'][number];

const COLUMNS = [
  { name: 'busy', label: 'Busy' },
  { name: 'other_users', label: 'Other users' },
  { name: 'no_work', label: 'No work' },
  { name: 'jobs_waited', label: 'Jobs waited' },
  { name: 'not_running', label: 'Not running' },
] as const;

export function GpuHistoryTable({ history }: { history: OneHistory }) {
  return (
    <div class="gpu-history">
      <table class="plain" aria-label={`History of GPU ${history.index ?? history.uuid}`}>
        <thead>
          <tr>
            {COLUMNS.map(({ name, label }) => (
              <th key={name} class="num">
                {label}
              </th>
            ))}
            <th class="num">Jobs</th>
          </tr>
        </thead>
        <tbody>
          <tr>
            {COLUMNS.map(({ name }) => (
              <td key={name} class="num">
                {history.shares[name]}
              </td>
            ))}
            <td class="num">{history.jobs}</td>
          </tr>
        </tbody>
      </table>
      {history.reasons.length > 0 && (
        <ul class="plain-list">
          {history.reasons.map(({ reason, seconds }) => (
            <li key={reason}>
              <span class="num">{duration(seconds)}</span>{' '}
              <span class="dim">{visible(reason)}</span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
