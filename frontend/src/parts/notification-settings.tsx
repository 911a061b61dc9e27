// The choice of browser notifications: for all jobs in the header, for one job on its page.
import * as notifications from '../browser-notifications';
import { type JobDetail, isFinal } from '../types';
import { ask } from './dialog';
import { Icon } from './icons';
import { notify } from './toast';

const LABELS: [notifications.Choice, string][] = [
  ['off', 'Only jobs that I select on their page'],
  ['failures', 'Jobs that fail'],
  ['all', 'All jobs that end'],
];
const REFUSED =
  'The browser does not allow notifications of this site; change that in its settings.';

function openSettings(): void {
  void ask({
    title: 'Browser notifications',
    yes: 'Save',
    body: (
      <fieldset class="choices">
        <legend>While no tab of Stoker is visible, notify about</legend>
        {LABELS.map(([value, label]) => (
          <label key={value} class="check">
            <input
              type="radio"
              name="value"
              value={value}
              defaultChecked={notifications.choice.peek() === value}
            />{' '}
            {label}
          </label>
        ))}
      </fieldset>
    ),
    async run({ value }) {
      if (!(await notifications.choose(value as notifications.Choice))) throw new Error(REFUSED);
    },
  });
}

export function NotificationButton() {
  if (!notifications.isPossible) return null;
  const isOn = notifications.choice.value !== 'off';
  return (
    <button
      class="icon"
      onClick={openSettings}
      aria-label={isOn ? 'Browser notifications are on' : 'Browser notifications'}
      title="Browser notifications"
    >
      <Icon name={isOn ? 'bell-on' : 'bell'} />
    </button>
  );
}

export function NotifyAboutJob({ job }: { job: JobDetail }) {
  if (!notifications.isPossible || isFinal(job)) return null;
  const isWatched = notifications.watched.value.has(job.id);
  const onClick = async () => {
    if (!(await notifications.watch(job.id, !isWatched))) notify(REFUSED);
  };
  return (
    <button aria-pressed={isWatched} onClick={() => void onClick()}>
      Notify me
    </button>
  );
}
