"""Jobs that succeeded in an earlier run in the same folder; `stoker run --resume` skips them.

A run stores the identity of each job in the column `dedupe` (see client/submit/job_identity.py).
Records of the first format have no identity: they are compared by command, folder and declared
variables.
"""

from __future__ import annotations

from stoker.engine.model import JobSpec
from stoker.engine.store.database import Database
from stoker.text.byte_text import to_text, unpack_pairs, unpack_words


class FinishedJobs:
    """Each record matches only once, so that of two identical lines the failed one runs again."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._old: dict[tuple[tuple[str, ...], str], list[dict[str, str]]] = {}

    @classmethod
    def load(cls, db: Database) -> FinishedJobs:
        """Read the records. Failed jobs lose their identity, so that their next run can use it."""
        found = cls()
        with db.transaction():
            db.execute("UPDATE jobs SET dedupe = NULL WHERE dedupe IS NOT NULL AND state != 'done'")
            rows = db.execute("SELECT dedupe FROM jobs WHERE dedupe IS NOT NULL AND state = 'done'")
            found._keys.update(to_text(key) for (key,) in rows)
            found._load_first_format(db)
        return found

    def _load_first_format(self, db: Database) -> None:
        rows = db.execute(
            "SELECT j.argv, j.context FROM jobs j WHERE j.state = 'done' AND j.dedupe IS NULL"
            " ORDER BY j.id"
        ).fetchall()
        contexts: dict[int, tuple[str, dict[str, str]]] = {}
        for argv, context in rows:
            if context not in contexts:
                cwd, env = db.execute(
                    "SELECT cwd, env FROM contexts WHERE id = ?", (context,)
                ).fetchone()
                contexts[context] = to_text(cwd), dict(unpack_pairs(env))
            cwd, variables = contexts[context]
            self._old.setdefault((unpack_words(argv), cwd), []).append(variables)

    def has(self, key: str, spec: JobSpec, declared_env: tuple[tuple[str, str], ...]) -> bool:
        """Whether this job succeeded before."""
        if key in self._keys:
            return True
        records = self._old.get((spec.argv, spec.context.cwd), ())
        for place, env in enumerate(records):
            if all(env.get(name) == value for name, value in dict(declared_env).items()):
                del self._old[spec.argv, spec.context.cwd][place]
                return True
        return False
