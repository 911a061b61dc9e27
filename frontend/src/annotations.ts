// Notes, stars and tags of jobs and sweeps: requests, and what the browser shows until the next data.
import { signal } from '@preact/signals';
import { get, post, request } from './api';
import { notify, showError, undo } from './parts/toast';
import type { Got } from './types';
import { visible } from './words';

export type Target = { job: number } | { sweep: string };

export interface Note {
  note: string;
  note_revision: number;
}

export const nameOf = (target: Target) =>
  'job' in target ? `job ${target.job}` : `sweep ${visible(target.sweep)}`;
export const keyOf = (target: Target) =>
  'job' in target ? `job ${target.job}` : `sweep ${target.sweep}`;
const notePath = (target: Target) =>
  'job' in target
    ? `/api/jobs/${target.job}/note`
    : `/api/sweeps/${encodeURIComponent(target.sweep)}/note`;

interface Change {
  star?: boolean;
  add_tags?: string[];
  remove_tags?: string[];
}

const change = (target: Target, changes: Change) =>
  post('/api/annotate', {
    ...('job' in target ? { jobs: [target.job] } : { sweeps: [target.sweep] }),
    ...changes,
  });

/** Stars that were set here and are not yet in the data of the server, by `keyOf`. */
export const newStars = signal(new Map<string, boolean>());

export function forgetStar(target: Target): void {
  if (!newStars.peek().has(keyOf(target))) return;
  const next = new Map(newStars.peek());
  next.delete(keyOf(target));
  newStars.value = next;
}

export async function setStar(
  target: Target,
  isStarred: boolean,
  done?: () => void,
): Promise<void> {
  newStars.value = new Map(newStars.peek()).set(keyOf(target), isStarred);
  try {
    await change(target, { star: isStarred });
    done?.();
  } catch (error) {
    forgetStar(target);
    showError(error);
  }
}

/** Change the star of a job in a table. */
export function toggleStar(job: { id: number; starred: boolean }): void {
  const target = { job: job.id };
  void setStar(target, !(newStars.peek().get(keyOf(target)) ?? job.starred));
}

export async function changeTags(
  target: Target,
  add: string[],
  remove: string[],
  done: () => void,
): Promise<void> {
  try {
    await change(target, { add_tags: add, remove_tags: remove });
    done();
    if (remove.length)
      notify(
        `Tag ${remove.map(visible).join(', ')} removed from ${nameOf(target)}`,
        `tags ${keyOf(target)}`,
        undo(() => void changeTags(target, remove, [], done)),
      );
  } catch (error) {
    showError(error);
  }
}

export async function saveNote(target: Target, text: string, continued: boolean): Promise<Note> {
  const response = await request('PUT', notePath(target), { text, continued });
  return response.json();
}

/** Tags that were used before, the most frequent first. */
export const knownTags = async (): Promise<string[]> =>
  (await get<Got<'/api/tags'>>('/api/tags')).tags.map((one) => one.tag);
