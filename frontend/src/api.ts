// Every request to the server goes through here.
import { signal } from '@preact/signals';

export class ApiError extends Error {
  constructor(readonly status: number, readonly code: string, message: string, readonly hint = '', readonly field: string | null = null) {
    super(message);
  }
}

/** False as soon as the server no longer knows us; the login form shows then. */
export const isSignedIn = signal(true);

let onLost = () => {};
/** Called whenever the server cannot be reached, before whoever asked hears of it. */
export const whenLost = (tell: () => void) => (onLost = tell);

export async function request(method: string, path: string, body?: unknown, stop?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { Accept: 'application/json' };
  if (method !== 'GET') {
    headers['Content-Type'] = 'application/json';
    headers['X-Stoker'] = '1';
  }
  let answer: Response;
  try {
    answer = await fetch(path, {
      method,
      headers,
      body: method === 'GET' ? undefined : JSON.stringify(body ?? {}),
      signal: stop ?? AbortSignal.timeout(30_000),
      credentials: 'same-origin',
    });
  } catch (error) {
    if (stop?.aborted) throw error;
    onLost();
    throw new ApiError(0, 'unreachable', 'the server does not answer', 'is `stoker web` still running?');
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => null);
  const error = said?.error ?? {};
  if (answer.status === 401 && path !== '/api/login') isSignedIn.value = false;
  throw new ApiError(answer.status, String(error.code ?? answer.status), String(error.message ?? answer.statusText), String(error.hint ?? ''), error.field ?? null);
}

export const get = async <T,>(path: string, stop?: AbortSignal): Promise<T> => (await request('GET', path, undefined, stop)).json();

export async function post<T>(path: string, body: unknown, stop?: AbortSignal): Promise<T> {
  const answer = await request('POST', path, body, stop);
  return answer.status === 204 ? (undefined as T) : answer.json();
}

/** `?a=1&b=2` of what is set. */
export function query(values: Record<string, string | number | null | undefined>): string {
  const kept = Object.entries(values).filter(([, v]) => v !== '' && v !== null && v !== undefined);
  return kept.length ? `?${new URLSearchParams(kept.map(([k, v]) => [k, String(v)]))}` : '';
}
