// The way in, for whoever has no link.
import { useState } from 'preact/hooks';
import { ApiError, isSignedIn, post } from '../api';

/** Trade a token for a cookie. */
export async function signIn(token: string): Promise<void> {
  await post('/api/login', { token });
  isSignedIn.value = true;
}

export function LoginScreen({ problem, onIn }: { problem: ApiError | null; onIn(): void }) {
  const [error, setError] = useState<ApiError | null>(problem);
  const [isBusy, setBusy] = useState(false);
  const onSubmit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const text = String(new FormData(event.target as HTMLFormElement).get('token')).trim();
      // Somebody may paste the whole link.
      await signIn(/#token=(.+)$/.exec(text)?.[1] ?? text);
      onIn();
    } catch (failure) {
      if (failure instanceof ApiError) setError(failure);
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="login">
      <form onSubmit={onSubmit}>
        <h1><span class="brand-mark" aria-hidden="true" /> Stoker</h1>
        <label class="field">
          <span>Token</span>
          <input name="token" type="password" autocomplete="off" required autofocus />
          <small><code>stoker web status</code> prints the link that has it.</small>
        </label>
        {error && <p class="bad-ink" role="alert">{error.status === 401 || error.status === 403 ? 'This token is not the right one.' : error.message}</p>}
        <button class="primary" disabled={isBusy}>Sign in</button>
      </form>
    </main>
  );
}
