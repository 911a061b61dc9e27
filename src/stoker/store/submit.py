"""Add jobs to the queue.

A large submit is several transactions (chunks), so that it does not block other writers for long.
"""

from __future__ import annotations

import zlib

from stoker.core.formats.byte_text import maybe_bytes, pack_pairs, pack_words, to_bytes
from stoker.core.model import Context, Dependency, JobSpec
from stoker.core.record import Record
from stoker.core.states import FINAL, HELD, QUEUED
from stoker.errors import Conflict, NotFound
from stoker.store.database import Database
from stoker.store.request_groups import RequestGroups
from stoker.testing.failpoints import failpoint

# About 15 ms of write lock: the longest that the daemon waits during a large submit.
CHUNK = 5000
_ENDED = {
    "done": "has succeeded", "failed": "has failed", "cancelled": "was cancelled",
    "lost": "was lost",
}  # fmt: skip

# In the order of the values in `Submission._row`, which are a tuple because a dict is slower.
_COLUMNS = (
    "id", "state", "ready", "request_group", "profile", "priority", "shell", "argv", "context",
    "submitted_at", "name", "batch", "batch_index", "time_limit", "grace", "retries",
    "restartable", "keep_children", "on_oom", "eligible_at", "blockers", "stdout", "stderr",
    "dedupe", "rerun_of", "variables", "warn", "sweep", "warm", "no_bind",
)  # fmt: skip
_INSERT = f"INSERT INTO jobs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"


class Receipt(Record):
    """The ids of one chunk. `existing` holds jobs that already had the dedupe key of a spec."""

    first: int
    added: int
    existing: tuple[int, ...] = ()

    @property
    def ids(self) -> list[int]:
        return [*range(self.first, self.first + self.added), *self.existing]


class Copied(Record):
    """What a copy of another queue's job keeps: id, number of attempts, place in its submit."""

    id: int
    attempts: int
    batch: int | None
    batch_index: int | None


class Submission:
    """One submit, in any number of chunks.

    With a token, the same submit can be repeated and adds nothing twice (store/submit_tokens.py);
    the caller must split the jobs into the same chunks.
    """

    def __init__(self, db: Database, learns: bool = True, token: str | None = None) -> None:
        self._db = db
        self._token = token
        self._chunk = 0
        self._contexts: dict[int, tuple[Context, int]] = {}
        self._groups = RequestGroups(db, learns)
        self._batch: int | None = None
        self._count = 0

    @property
    def db(self) -> Database:
        return self._db

    def add(self, specs: list[JobSpec], now: float) -> Receipt:
        """Add jobs in one transaction. They are on disk when this returns."""
        with self._db.transaction():
            receipt = self._insert_once(specs, now) if self._token else self.insert(specs, now)
            failpoint("submit.before_commit")
        failpoint("submit.after_commit")
        return receipt

    def insert_copies(self, copies: list[tuple[JobSpec, Copied]], now: float) -> None:
        """Add copies of another queue's jobs inside the caller's transaction."""
        rows = [self._row(spec, copied.id, now, None) for spec, copied in copies]
        self._db.executemany(_INSERT, rows)
        self._db.executemany(
            "UPDATE jobs SET attempts = ?, batch = ?, batch_index = ? WHERE id = ?",
            [(one.attempts, one.batch, one.batch_index, one.id) for _, one in copies],
        )

    def _insert_once(self, specs: list[JobSpec], now: float) -> Receipt:
        """Add jobs unless an earlier submit with this token did; returns its receipt then."""
        from stoker.store import submit_tokens

        assert self._token is not None
        chunk, self._chunk = self._chunk, self._chunk + 1
        known = submit_tokens.receipt(self._db, self._token, chunk)
        if known is None:
            receipt = self.insert(specs, now)
            submit_tokens.save_receipt(self._db, self._token, chunk, receipt._asdict(), now)
            return receipt
        receipt = Receipt(known["first"], known["added"], tuple(known["existing"]))
        if self._batch is None:
            self._batch = receipt.first
        self._count += receipt.added
        return receipt

    def insert(self, specs: list[JobSpec], now: float) -> Receipt:
        """Add jobs inside the caller's transaction."""
        db = self._db
        fresh, existing = _without_known(db, specs)
        first = take_ids(db, len(fresh))
        is_batch = len(specs) > 1 or self._count > 0
        if self._batch is None:
            self._batch = first
        rows = []
        for place, spec in enumerate(fresh):
            index = self._count + place if is_batch else None
            rows.append(self._row(spec, first + place, now, index))
        db.executemany(_INSERT, rows)
        for place, spec in enumerate(fresh):
            if spec.tags:
                _tag(db, first + place, spec.tags)
        self._count += len(fresh)
        return Receipt(first, len(fresh), existing)

    def _row(self, spec: JobSpec, job: int, now: float, index: int | None) -> tuple[object, ...]:
        known = self._contexts.get(id(spec.context))
        if known is None or known[0] is not spec.context:
            known = (spec.context, context_id(self._db, spec.context))
            self._contexts[id(spec.context)] = known
        blockers = depend(self._db, job, spec.after) if spec.after else 0
        later = spec.begin_at if spec.begin_at is not None and spec.begin_at > now else None
        ready = not spec.held and not blockers and later is None
        return (
            job,
            HELD if spec.held else QUEUED,
            int(ready),
            *self._groups.of(spec),  # request_group, profile
            spec.priority,
            int(spec.shell),
            pack_words(spec.argv),
            known[1],
            now,
            maybe_bytes(spec.name),
            None if index is None else self._batch,
            index,
            spec.time_limit,
            spec.grace,
            spec.retries,
            int(spec.restartable),
            int(spec.keep_children),
            spec.on_oom,
            later,
            blockers,
            maybe_bytes(spec.stdout),
            maybe_bytes(spec.stderr),
            maybe_bytes(spec.dedupe),
            None,  # rerun_of
            pack_pairs(spec.variables) or None,
            spec.warn,
            spec.sweep,
            maybe_bytes(spec.warm),
            int(spec.no_bind),
        )


def context_id(db: Database, context: Context) -> int:
    """Return the id of a context, which is created if it is new."""
    env = pack_pairs(context.env)
    cwd, shell = to_bytes(context.cwd), to_bytes(context.shell)
    crc = zlib.crc32(b"\0".join((cwd, shell, env)))
    row = db.execute(
        "SELECT id FROM contexts WHERE crc = ? AND cwd = ? AND env = ? AND umask = ? AND shell = ?",
        (crc, cwd, env, context.umask, shell),
    ).fetchone()
    if row is not None:
        return int(row[0])
    cursor = db.execute(
        "INSERT INTO contexts (crc, cwd, env, umask, shell) VALUES (?, ?, ?, ?, ?)",
        (crc, cwd, env, context.umask, shell),
    )
    return int(cursor.lastrowid or 0)


def _without_known(db: Database, chunk: list[JobSpec]) -> tuple[list[JobSpec], tuple[int, ...]]:
    """Split off the specs whose dedupe key is already in the queue (or earlier in this chunk)."""
    if all(spec.dedupe is None for spec in chunk):
        return chunk, ()
    fresh, existing, seen = [], [], set()
    for spec in chunk:
        if spec.dedupe is not None:
            known = db.value("SELECT id FROM jobs WHERE dedupe = ?", (to_bytes(spec.dedupe),))
            if known is not None:
                existing.append(int(str(known)))
                continue
            if spec.dedupe in seen:
                continue
            seen.add(spec.dedupe)
        fresh.append(spec)
    return fresh, tuple(existing)


def take_ids(db: Database, count: int) -> int:
    """Reserve ids and return the first; an id is never reused, even after its job is removed."""
    first = int(str(db.value("SELECT value FROM meta WHERE key = 'next_job'")))
    db.execute("UPDATE meta SET value = ? WHERE key = 'next_job'", (first + count,))
    return first


def depend(db: Database, job: int, after: tuple[Dependency, ...]) -> int:
    """Record dependencies and return how many are not met yet.

    Raises NotFound for an unknown job and Conflict if a dependency can never be met.
    """
    unmet = 0
    for needs, condition in dict(after).items():
        state = db.value("SELECT state FROM jobs WHERE id = ?", (needs,))
        if state is None:
            raise NotFound(
                f"there is no job {needs} to wait for", "`stoker ls` shows the jobs", field="after"
            )
        met = is_satisfied(str(state), condition)
        if met is False:
            raise Conflict(
                f"job {needs} {_ENDED[str(state)]}, so a job with --after {needs}:{condition}"
                " would never start",
                f"use --after {needs}:any, or rerun job {needs} first",
                field="after",
            )
        unmet += met is None
        db.execute(
            "INSERT INTO dependencies VALUES (?, ?, ?, ?)",
            (job, needs, condition, int(met is True)),
        )
    return unmet


def is_satisfied(state: str, condition: str) -> bool | None:
    """Whether a job in `state` meets the condition; None while that is open."""
    if state not in FINAL:
        return None
    return condition == "any" or (state == "done") == (condition == "ok")


def _tag(db: Database, job: int, tags: tuple[str, ...]) -> None:
    db.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", [(to_bytes(t), job) for t in tags])
