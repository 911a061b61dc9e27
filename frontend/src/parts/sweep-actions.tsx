// The actions on a sweep. Python says which are possible and what they do; the others are listed with
// the reason why they are not.
import {
  cloneSweepHref,
  extendSweep,
  removeSweep,
  rerunFailed,
  resumeSweep,
  stopSweep,
} from '../actions';
import { plural } from '../format';
import type { SweepDetail } from '../types';
import { visible } from '../words';
import { addPoint, addValues } from './add-values';
import { ask } from './dialog';

const LABELS: Record<string, string> = {
  clone: 'Clone and edit',
  extend: 'Extend',
  add_values: 'Add values',
  add_point: 'Add a trial',
  resume: 'Resume',
  rerun_failed: 'Rerun failed',
  stop: 'Stop',
  rm: 'Remove',
};
const IN_MENU = ['add_point', 'rm'];

type Choice = SweepDetail['actions'][number];

export function SweepActions({ sweep }: { sweep: SweepDetail }) {
  const possible = sweep.actions.filter((one) => one.problem === null);
  const impossible = sweep.actions.filter((one) => one.problem !== null);
  const button = (one: Choice, isInMenu: boolean) =>
    one.action === 'clone' ? (
      <a key="clone" class="button" href={cloneSweepHref(sweep.name)} title={one.effect}>
        Clone and edit
      </a>
    ) : (
      <button
        key={one.action}
        class={['stop', 'rm'].includes(one.action) ? 'danger' : undefined}
        title={one.effect}
        onClick={(event) => {
          if (isInMenu) event.currentTarget.closest('details')?.removeAttribute('open');
          void run(one, sweep);
        }}
      >
        {labelOf(one, sweep)}
      </button>
    );
  return (
    <div class="row actions">
      {possible.filter((one) => !IN_MENU.includes(one.action)).map((one) => button(one, false))}
      <details
        class="action-menu"
        onKeyDown={(event) => {
          if (event.key === 'Escape') event.currentTarget.open = false;
        }}
        onFocusOut={(event) => {
          const next = event.relatedTarget as Node | null;
          if (next && !event.currentTarget.contains(next)) event.currentTarget.open = false;
        }}
      >
        <summary class="button">More</summary>
        <div class="action-menu-body">
          {possible
            .filter((one) => IN_MENU.includes(one.action))
            .map((one) => (
              <div key={one.action} class="action-menu-item">
                {button(one, true)}
                <small class="dim">{one.effect}</small>
              </div>
            ))}
          {impossible.map((one) => (
            <p key={one.action} class="action-menu-item dim">
              <b>{LABELS[one.action] ?? one.action}</b>
              <small>{visible(one.problem ?? '')}</small>
            </p>
          ))}
        </div>
      </details>
    </div>
  );
}

function labelOf(one: Choice, sweep: SweepDetail): string {
  if (one.action === 'resume' && sweep.state !== 'stopped')
    return `Run ${plural(sweep.missing, 'missing trial')}`;
  const asks = ['extend', 'add_values', 'add_point', 'stop', 'rm'].includes(one.action);
  return `${LABELS[one.action] ?? one.action}${asks ? '…' : ''}`;
}

async function run({ action, effect }: Choice, sweep: SweepDetail): Promise<void> {
  const { name } = sweep;
  if (action === 'resume') await resumeSweep(name);
  else if (action === 'rerun_failed') await rerunFailed(name);
  else if (action === 'add_values') await addValues(name);
  else if (action === 'add_point') await addPoint(name);
  else if (action === 'extend')
    await ask({
      title: `Extend ${visible(name)}`,
      body: effect,
      yes: 'Extend',
      field: { label: 'More trials', type: 'number', value: '20' },
      run: ({ value }) => extendSweep(name, Number(value), sweep.requested),
    });
  else if (action === 'stop') {
    const running = (sweep.trials.running ?? 0) + (sweep.trials.starting ?? 0);
    const answer = await ask({
      title: `Stop sweep ${visible(name)}?`,
      body: effect,
      yes: 'Stop sweep',
      isDanger: true,
      ...(running
        ? { box: { label: `Also cancel ${plural(running, 'running trial')}`, value: false } }
        : {}),
    });
    if (answer) await stopSweep(name, answer.box);
  } else if (action === 'rm')
    await ask({
      title: `Remove sweep ${visible(name)}?`,
      body: effect,
      yes: 'Remove sweep',
      isDanger: true,
      box: {
        label: 'Also remove its jobs, their logs and metrics, and the folders of its trials',
        value: false,
      },
      run: ({ box }) => removeSweep(name, box),
    });
}
