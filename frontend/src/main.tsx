// The entry point: sign in with the token of the link, then render the application.
import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ApiError, isSignedIn } from './api';
import * as notifications from './browser-notifications';
import { App } from './app';
import * as keys from './keys';
import * as places from './places';
import { showHelp } from './parts/help';
import { moveFocus } from './parts/table';
import { undoLast } from './parts/toast';
import * as route from './route';
import { LoginScreen, signIn } from './screens/login';
import * as store from './store';
import { health } from './stream';
import * as theme from './theme';
import 'uplot/dist/uPlot.min.css';
import './style/base.css';
import './style/parts.css';
import './style/screens.css';
import './style/log.css';
import './style/parallel.css';
import './style/notes.css';
import './style/sweep-actions.css';
import './style/curves.css';
import './style/compare.css';
import './style/files.css';
import './style/run.css';
import './style/timeline.css';
import './style/tables.css';

/** Return the token from the address, and remove it from the address and the browser history. */
function takeToken(): string | null {
  const token = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (!token) return null;
  route.replace('#/');
  return decodeURIComponent(token);
}

const token = takeToken();
// A link may be pasted into a tab that already shows the web UI.
addEventListener('hashchange', () => {
  const fresh = takeToken();
  if (fresh)
    signIn(fresh).then(
      () => location.reload(),
      () => (isSignedIn.value = false),
    );
});
theme.watchSystem();
notifications.start();
places.trackScrolling();
route.watchAddress();
keys.listen({
  '?': showHelp,
  '/': () => document.getElementById('search')?.focus(),
  t: theme.toggle,
  u: undoLast,
  j: () => moveFocus(1),
  k: () => moveFocus(-1),
});

function Root() {
  const [problem, setProblem] = useState<ApiError | null>(null);
  const begin = async (given: string | null) => {
    try {
      if (given) await signIn(given);
      await store.start();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (given && error.status >= 400 && error.status < 500) {
        setProblem(error);
        isSignedIn.value = false;
      } else if (error.status !== 401) {
        setTimeout(() => void begin(null), 3000); // the overview shows the error in the meantime
      }
    }
  };
  useEffect(() => void begin(token), []);
  if (!isSignedIn.value)
    return (
      <LoginScreen
        problem={problem}
        onSignedIn={() => (health.peek() === 'starting' ? void begin(null) : location.reload())}
      />
    );
  return <App />;
}

render(<Root />, document.getElementById('app')!);
