// The frame around every screen: navigation, connection status, messages and dialogs.
import { useEffect, useReducer } from 'preact/hooks';
import { daemonAct } from './actions';
import { clock, count } from './format';
import { DialogHost } from './parts/dialog';
import { showHelp } from './parts/help';
import { Icon } from './parts/icons';
import { NotificationButton } from './parts/notification-settings';
import { SelectionBar } from './parts/selection-bar';
import { Toasts } from './parts/toast';
import { Empty } from './parts/bits';
import { go, href, jobHref, route } from './route';
import { CompareScreen } from './screens/compare';
import { GpusScreen } from './screens/gpus';
import { HistoryScreen } from './screens/history';
import { JobScreen } from './screens/job';
import { LogScreen } from './screens/log';
import { OverviewScreen } from './screens/overview';
import { SubmitScreen } from './screens/submit';
import { SweepScreen } from './screens/sweep';
import { SweepsScreen } from './screens/sweeps';
import * as store from './store';
import { health, lastContactAt, retryAt, retryNow } from './stream';
import { isDark, toggle } from './theme';

const PLACES = [
  { path: '', href: '#/', label: 'Overview', icon: 'overview' },
  { path: 'sweeps', href: '#/sweeps', label: 'Sweeps', icon: 'sweeps' },
  { path: 'history', href: '#/history', label: 'History', icon: 'history' },
  { path: 'gpus', href: '#/gpus', label: 'GPUs', icon: 'gpus' },
] as const;

function Screen() {
  const [first, second, third] = route.value.path;
  const id = Number(second);
  if (first === undefined) return <OverviewScreen />;
  if (first === 'jobs' && Number.isInteger(id))
    return third === 'log' ? <LogScreen key={id} id={id} /> : <JobScreen key={id} id={id} />;
  if (first === 'sweeps')
    return second === undefined ? <SweepsScreen /> : <SweepScreen key={second} name={second} />;
  if (first === 'history') return <HistoryScreen />;
  if (first === 'gpus') return <GpusScreen />;
  if (first === 'compare') return <CompareScreen />;
  if (first === 'submit') return <SubmitScreen />;
  return (
    <Empty title="Not found">
      <a href="#/">Overview</a>
    </Empty>
  );
}

export function App() {
  const isStale = health.value === 'stale';
  const place = route.value.path[0] === 'jobs' ? 'history' : (route.value.path[0] ?? '');
  useEffect(() => {
    const what = route.value.path.length
      ? route.value.path.join(' ')
      : `${count(store.nStarted.value)} running, ${count(store.nWaiting.value + store.nSubmitted.value)} queued`;
    document.title = `${what} · Stoker`;
  }, [route.value, store.nStarted.value, store.nWaiting.value, store.nSubmitted.value]);
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById('main')?.focus();
        }}
      >
        Skip to content
      </a>
      <header class="top">
        <a class="brand" href="#/">
          <span class="brand-mark" aria-hidden="true" />
          Stoker
        </a>
        <nav aria-label="Screens">
          {PLACES.map((one) => (
            <a
              key={one.path}
              href={one.href}
              aria-current={place === one.path ? 'page' : undefined}
            >
              <Icon name={one.icon} />
              {one.label}
            </a>
          ))}
          {!store.isReadOnly.value && (
            <a href="#/submit" class="new" aria-current={place === 'submit' ? 'page' : undefined}>
              <Icon name="submit" />
              Submit
            </a>
          )}
        </nav>
        <span class="grow" />
        <Search />
        <Status />
        <NotificationButton />
        <button
          class="icon"
          onClick={toggle}
          aria-label={isDark.value ? 'Light theme' : 'Dark theme'}
          title="Theme"
        >
          <Icon name={isDark.value ? 'sun' : 'moon'} />
        </button>
        <button
          class="icon wide-only"
          onClick={showHelp}
          aria-label="Keyboard shortcuts"
          title="Keyboard shortcuts (?)"
        >
          ?
        </button>
      </header>
      {isStale && <StaleBanner />}
      <DaemonBanner />
      <main
        id="main"
        tabIndex={-1}
        class={isStale ? 'stale' : ''}
        aria-busy={!store.isLoaded.value}
      >
        <Screen />
      </main>
      <SelectionBar />
      <Toasts />
      <DialogHost />
    </>
  );
}

function Search() {
  const onSubmit = (event: Event) => {
    event.preventDefault();
    const input = document.getElementById('search') as HTMLInputElement;
    const text = input.value.trim();
    if (!text) return;
    go(/^\d+$/.test(text) ? jobHref(Number(text)) : href(['history'], { q: text }));
    input.value = '';
    input.blur();
  };
  return (
    <form role="search" class="search" onSubmit={onSubmit}>
      <input
        id="search"
        type="search"
        placeholder="Find a job"
        aria-label="Find a job by id, name or command"
      />
      <kbd aria-hidden="true">/</kbd>
    </form>
  );
}

function Status() {
  const now = health.value;
  const text = now === 'live' ? 'live' : now === 'stale' ? 'not connected' : 'connecting';
  const { user, host } = store.host.value;
  return (
    <span class={`status ${now}`}>
      <i aria-hidden="true" />
      <span class="wide-only">{user && `${user}@${host} ·`}</span>
      {store.isReadOnly.value ? `${text}, read-only` : text}
    </span>
  );
}

function StaleBanner() {
  const [, tick] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    const timer = setInterval(() => tick(0), 1000);
    return () => clearInterval(timer);
  }, []);
  const wait = Math.max(0, Math.ceil((retryAt.value - Date.now()) / 1000));
  return (
    <div class="banner bad" role="alert">
      <span class="grow">
        The server does not answer. The data shown is from{' '}
        {clock(new Date(lastContactAt.value).toISOString())}; actions do not reach the server.
      </span>
      <span class="num">{wait ? `retry in ${wait}s` : 'retrying…'}</span>
      <button onClick={retryNow}>Retry now</button>
    </div>
  );
}

function DaemonBanner() {
  if (!store.isLoaded.value) return null;
  const { pid, draining } = store.daemon.value;
  const canAct = !store.isReadOnly.value;
  if (draining) {
    return (
      <div class="banner" role="status">
        <span class="grow">Draining: running jobs finish, no new jobs start.</span>
        {canAct && <button onClick={() => void daemonAct('resume')}>Resume</button>}
      </div>
    );
  }
  const nUnfinished = store.nWaiting.value + store.nSubmitted.value + store.nStarted.value;
  if (pid === null && nUnfinished > 0) {
    return (
      <div class="banner" role="status">
        <span class="grow">The daemon is not running, so no jobs start.</span>
        {canAct && <button onClick={() => void daemonAct('start')}>Start the daemon</button>}
      </div>
    );
  }
  return null;
}
