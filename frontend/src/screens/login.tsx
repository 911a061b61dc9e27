// The sign-in form, for users without a link that contains the token.
import { useState } from 'preact/hooks';
import { ApiError, isSignedIn, post } from '../api';

/** Exchange the token for a session cookie. */
export async function signIn(token: string): Promise<void> {
  await post('/api/login', { token });
  isSignedIn.value = true;
}

export function LoginScreen({
  problem,
  onSignedIn,
}: {
  problem: ApiError | null;
  onSignedIn(): void;
}) {
  const [error, setError] = useState<ApiError | null>(problem);
  const [isBusy, setBusy] = useState(false);
  const onSubmit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const text = String(new FormData(event.target as HTMLFormElement).get('token')).trim();
      // Accept the whole link, too.
      await signIn(/#token=(.+)$/.exec(text)?.[1] ?? text);
      onSignedIn();
    } catch (failure) {
      if (failure instanceof ApiError) setError(failure);
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="login">
      <form onSubmit={onSubmit}>
        <h1>
          <span class="brand-mark" aria-hidden="true" /> Stoker
        </h1>
        <label class="field">
          <span>Token</span>
          <input name="token" type="password" autocomplete="off" required autofocus />
          <small>
            <code>stoker web status</code> prints a link that contains the token.
          </small>
        </label>
        {error && (
          <p class="bad-ink" role="alert">
            {error.status === 401 || error.status === 403
              ? 'This token is not valid.'
              : error.message}
          </p>
        )}
        <button class="primary" disabled={isBusy}>
          Sign in
        </button>
      </form>
    </main>
  );
}
