// The local changes of two jobs, file by file.

export interface FilePair {
  name: string;
  /** The diff of this file in each job; null: the job did not change it. */
  first: string | null;
  second: string | null;
  isSame: boolean;
}

/** The diffs of each file in the output of `git diff`, by name. */
export function filesOf(diff: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const text of diff.split(/^(?=diff --git )/m)) {
    const head = /^diff --git (?:"?a\/)?.*? "?b\/(.*?)"?$/m.exec(text);
    if (head) found.set(head[1]!, text.trimEnd());
  }
  return found;
}

/** All files that one of two jobs changed, those that differ between them first. */
export function filePairs(first: string, second: string): FilePair[] {
  const [a, b] = [filesOf(first), filesOf(second)];
  const names = [...new Set([...a.keys(), ...b.keys()])].sort();
  const pairs = names.map((name) => ({
    name,
    first: a.get(name) ?? null,
    second: b.get(name) ?? null,
    isSame: a.get(name) === b.get(name),
  }));
  return [...pairs.filter((pair) => !pair.isSame), ...pairs.filter((pair) => pair.isSame)];
}
