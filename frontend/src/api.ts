// Every request to the server goes through here.
import { signal } from '@preact/signals';

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint = '',
    readonly field: string | null = null,
    /** The part of a filter that the error is about: start and end. */
    readonly at: [number, number] | null = null,
  ) {
    super(message);
  }
}

/** False once the server rejects the session; the login form is shown then. */
export const isSignedIn = signal(true);

let onUnreachable = () => {};
/** Register a callback for requests that cannot reach the server; it runs before the request fails. */
export const whenUnreachable = (callback: () => void) => (onUnreachable = callback);

/** Keys of requests without a clear answer: a repeated request must not add jobs twice. */
const openKeys = new Map<string, string>();
const KEY_MS = 10 * 60_000;

export async function request(
  method: string,
  path: string,
  body?: unknown,
  stop?: AbortSignal,
): Promise<Response> {
  const headers: Record<string, string> = { Accept: 'application/json' };
  if (method !== 'GET') {
    headers['Content-Type'] = 'application/json';
    headers['X-Stoker'] = '1';
  }
  const text = method === 'GET' ? undefined : JSON.stringify(body ?? {});
  const said = `${method} ${path} ${text}`;
  if (method === 'POST') {
    // Not crypto.randomUUID, which browsers only have on loopback addresses and HTTPS.
    const key = openKeys.get(said) ?? crypto.getRandomValues(new Uint32Array(4)).join('-');
    openKeys.set(said, key);
    setTimeout(() => openKeys.get(said) === key && openKeys.delete(said), KEY_MS);
    headers['Idempotency-Key'] = key;
  }
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: text,
      signal: stop ?? AbortSignal.timeout(30_000),
      credentials: 'same-origin',
    });
  } catch (error) {
    if (stop?.aborted) throw error;
    onUnreachable();
    throw new ApiError(
      0,
      'unreachable',
      'the server does not answer',
      'is `stoker web` still running?',
    );
  }
  if (response.status < 500) openKeys.delete(said);
  if (response.ok) return response;
  const payload = await response.json().catch(() => null);
  const error = payload?.error ?? {};
  if (response.status === 401 && path !== '/api/login') isSignedIn.value = false;
  throw new ApiError(
    response.status,
    String(error.code ?? response.status),
    String(error.message ?? response.statusText),
    String(error.hint ?? ''),
    error.field ?? null,
    error.at ?? null,
  );
}

export const get = async <T>(path: string, stop?: AbortSignal): Promise<T> =>
  (await request('GET', path, undefined, stop)).json();

export async function post<T>(path: string, body: unknown, stop?: AbortSignal): Promise<T> {
  const response = await request('POST', path, body, stop);
  return response.status === 204 ? (undefined as T) : response.json();
}

export const patch = async (path: string, body: unknown): Promise<void> =>
  void (await request('PATCH', path, body));

/** The query string of all values that are set: `?a=1&b=2`. */
export function query(values: Record<string, string | number | null | undefined>): string {
  const kept = Object.entries(values).filter(([, v]) => v !== '' && v !== null && v !== undefined);
  return kept.length ? `?${new URLSearchParams(kept.map(([k, v]) => [k, String(v)]))}` : '';
}
