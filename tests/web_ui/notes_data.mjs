// Notes, stars and tags in the fake server, as in src/stoker/features/notes/web.py.
const firstLine = (text) => (text ?? '').trim().split('\n')[0].slice(0, 120) || null;

/** The fields of a job's or sweep's own screen. */
export const noteFields = (owner) => ({
  note: owner.note ?? '',
  note_revision: owner.noteRevision ?? 0,
  note_changed_at: null,
  previous_note: owner.previousNote ?? '',
});

/** The fields of a sweep in lists. */
export const noteSummary = (sweep) => ({
  starred: sweep.starred ?? false,
  tags: sweep.tags ?? [],
  note_line: firstLine(sweep.note),
});

export function writeNote(owner, { text, continued }) {
  const before = noteFields(owner);
  if (!continued) owner.previousNote = before.note;
  owner.note = text;
  owner.note_line = firstLine(text);
  owner.noteRevision = before.note_revision + 1;
  return noteFields(owner);
}

export function annotate(fake, { jobs = [], sweeps = [], star = null, ...tags }) {
  const { add_tags: add = [], remove_tags: remove = [] } = tags;
  const owners = [
    ...jobs.map((id) => fake.jobs.get(id)),
    ...sweeps.map((name) => fake.sweeps.get(name)),
  ];
  for (const owner of owners) {
    if (star !== null) owner.starred = star;
    const kept = (owner.tags ?? []).filter((tag) => !remove.includes(tag));
    owner.tags = [...new Set([...kept, ...add])].sort();
  }
  fake.publish(jobs);
  return { changed: owners.length };
}

export function knownTags(fake) {
  const counts = new Map();
  for (const owner of [...fake.jobs.values(), ...fake.sweeps.values()])
    for (const tag of owner.tags ?? []) counts.set(tag, (counts.get(tag) ?? 0) + 1);
  return { tags: [...counts].map(([tag, count]) => ({ tag, count })) };
}
