"""Add jobs to the queue.

A large submit is several transactions (chunks), so that it does not block other writers for long.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable

from stoker.engine.model import AfterSelector, Context, JobSpec
from stoker.engine.snapshot_context import WISHES
from stoker.engine.store.database import Database
from stoker.engine.store.request_groups import RequestGroups
from stoker.record import Record
from stoker.states import HELD, QUEUED
from stoker.testing.failpoints import failpoint
from stoker.text.byte_text import maybe_bytes, pack_pairs, pack_words, to_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from stoker.engine.store.needed_jobs import Needed

    class NewCode(Protocol):
        """The code of new jobs, which is not in the database yet."""

        def save(self, db: Database) -> int:
            """Return its number for the rows of the jobs. Called in their transaction."""

    class SnapshotTaker(Protocol):
        """Takes the snapshots that jobs wish for."""

        def take(self, specs: list[JobSpec]) -> list[JobSpec]:
            """The same jobs, in snapshots; none may be removed before `release`."""

        def save(self, db: Database, id: str, now: float) -> None:
            """Record a snapshot, unless it is known. Called in the transaction of its jobs."""

        def release(self) -> None:
            """The jobs are in the database, or will not be."""


# About 15 ms of write lock: the longest that the daemon waits during a large submit.
CHUNK = 5000
# Columns with a value of its own for each job; those that many jobs share follow.
_OWN_COLUMNS = ("id", "argv", "request_group", "profile", "batch", "batch_index")


class Receipt(Record):
    """The ids of one chunk. `existing` holds jobs that already had the dedupe key of a spec."""

    first: int
    added: int
    existing: tuple[int, ...] = ()

    @property
    def ids(self) -> list[int]:
        return [*range(self.first, self.first + self.added), *self.existing]


class Copied(Record):
    """What a copy of another queue's job keeps: id, number of attempts, place in its submit, and
    the number of its code there."""

    id: int
    attempts: int
    batch: int | None
    batch_index: int | None
    code: int | None = None


class _SharedValues:
    """The statement that adds a job, and the values of the columns that it shares with others."""

    __slots__ = ("statement", "values")

    def __init__(self, columns: dict[str, object], more: tuple[str, ...] = ()) -> None:
        """`columns`: those that are left out have the default of the table: that is faster.

        `more`: further columns with a value of its own for each job.
        """
        names = (*_OWN_COLUMNS, *more, *columns)
        self.statement = (
            f"INSERT INTO jobs ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        )
        self.values = tuple(columns.values())


class Submission:
    """One submit, in any number of chunks.

    With a token, the same submit can be repeated and adds nothing twice
    (engine/store/submit_tokens.py); the caller must split the jobs into the same chunks. `code_of`
    returns the state of the code in the folder of a context, which is recorded with its jobs;
    `snapshots` returns what takes the snapshots that jobs wish for.
    """

    def __init__(
        self,
        db: Database,
        learns: bool = True,
        token: str | None = None,
        code_of: Callable[[Context], NewCode | None] | None = None,
        snapshots: Callable[[], SnapshotTaker] | None = None,
    ) -> None:
        self._db = db
        self._token = token
        self._code_of = code_of
        self._snapshots = snapshots
        self._taker: SnapshotTaker | None = None  # while jobs with snapshots are added
        self._codes: dict[int, tuple[Context, NewCode | None]] = {}  # by id of the context
        self._chunk = 0
        self._contexts: dict[int, tuple[Context, int, int | None]] = {}  # with context and code
        self._groups = RequestGroups(db, learns)
        self._batch: int | None = None
        self._count = 0

    @property
    def db(self) -> Database:
        return self._db

    def add(self, specs: list[JobSpec], now: float) -> Receipt:
        """Add jobs in one transaction. They are on disk when this returns."""
        if self._snapshots is None or not any(spec.snapshot in WISHES for spec in specs):
            return self._add(specs, now)
        self._taker = self._snapshots()
        try:
            return self._add(self._taker.take(specs), now)
        finally:
            self._taker.release()

    def _add(self, specs: list[JobSpec], now: float) -> Receipt:
        self.gather_code(specs)
        with self._db.transaction():
            receipt = self._insert_once(specs, now) if self._token else self.insert(specs, now)
            failpoint("submit.before_commit")
        failpoint("submit.after_commit")
        return receipt

    def gather_code(self, specs: list[JobSpec]) -> None:
        """Read the code of new contexts. Call this before the transaction: git takes its time."""
        if self._code_of is None:
            return
        last: Context | None = None
        for spec in specs:
            if spec.context is not last:
                last = spec.context
                known = self._codes.get(id(last))
                if known is None or known[0] is not last:
                    self._codes[id(last)] = (last, self._code_of(last))

    def insert_copies(self, copies: list[tuple[JobSpec, Copied]], now: float) -> None:
        """Add copies of another queue's jobs inside the caller's transaction."""
        self._insert([(spec, copied.id, None) for spec, copied in copies], now)
        self._db.executemany(
            "UPDATE jobs SET attempts = ?, batch = ?, batch_index = ?, code = ? WHERE id = ?",
            [(one.attempts, one.batch, one.batch_index, one.code, one.id) for _, one in copies],
        )

    def _insert_once(self, specs: list[JobSpec], now: float) -> Receipt:
        """Add jobs unless an earlier submit with this token did; returns its receipt then."""
        from stoker.engine.store import submit_tokens

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
        """Add jobs inside the caller's transaction. Call `gather_code` before it."""
        db = self._db
        fresh, existing = _without_known(db, specs)
        added = sum(1 if indexes is None else len(indexes) for _, indexes in fresh)
        first = take_ids(db, added)
        is_batch = len(specs) > 1 or self._count > 0
        if self._batch is None:
            self._batch = first
        jobs: list[tuple[JobSpec, int, int | None]] = []
        job, place = first, self._count
        for spec, indexes in fresh:
            if indexes is not None:
                self._insert(jobs, now)
                self._insert_array(spec, indexes, job, now)
                jobs.clear()
            else:
                jobs.append((spec, job, place if is_batch else None))
            count = 1 if indexes is None else len(indexes)
            job, place = job + count, place + count
        self._insert(jobs, now)
        self._count += added
        return Receipt(first, added, existing)

    def _insert(self, jobs: list[tuple[JobSpec, int, int | None]], now: float) -> None:
        """Add jobs, each with its id and its place in the batch."""
        rows: dict[str, list[tuple[object, ...]]] = {}  # by statement
        needed_by: list[tuple[object, ...]] = []
        group_of, batch = self._groups.of, self._batch
        rest: tuple[object, ...] | None = None
        shared = _SharedValues({})
        needed: list[Needed] = []
        for spec, job, index in jobs:
            if spec[1:] != rest:  # the jobs of a file differ only in their argv
                rest = spec[1:]
                if spec.after:
                    if _is_about_earlier_lines(spec):
                        self._add_rows(rows)
                        rest = None
                    needed = self._needed(spec, job)
                else:
                    needed = []
                shared = self._shared_values(spec, now, needed)
            row = (
                job,
                pack_words(spec.argv),
                *group_of(spec),
                None if index is None else batch,
                index,
                *shared.values,
            )
            rows.setdefault(shared.statement, []).append(row)
            needed_by += [(job, *one) for one in needed]
            if spec.tags:
                _tag(self._db, [job], spec.tags)
        self._add_rows(rows)
        wait_for(self._db, needed_by)

    def _add_rows(self, rows: dict[str, list[tuple[object, ...]]]) -> None:
        for statement, some in rows.items():
            self._db.executemany(statement, some)
        rows.clear()

    def _insert_array(
        self, spec: JobSpec, indexes: tuple[int, ...], first: int, now: float
    ) -> None:
        """Add one job for each index."""
        from stoker.engine.store import arrays
        from stoker.text.array_indexes import format_indexes, parse_array

        if not indexes:  # all of them have their dedupe key already
            return
        most = parse_array(spec.array or "").most
        if most is not None:
            spec = spec._replace(request=spec.request._replace(array=first))
        arrays.add(self._db, first, format_indexes(indexes), most)
        needed = self._needed(spec, first, len(indexes)) if spec.after else []
        shared = self._shared_values(
            spec._replace(dedupe=None), now, needed, more=("array_index", "dedupe")
        )
        group, profile = self._groups.of(spec)
        argv, key = pack_words(spec.argv), spec.dedupe
        jobs = range(first, first + len(indexes))
        self._db.executemany(
            shared.statement,
            [
                (
                    job,
                    argv,
                    group,
                    profile,
                    first,
                    job - first,
                    index,
                    None if key is None else to_bytes(index_key(key, index)),
                    *shared.values,
                )
                for job, index in zip(jobs, indexes, strict=True)
            ],
        )
        wait_for(self._db, [(job, *one) for job in jobs for one in needed])
        if spec.tags:
            _tag(self._db, jobs, spec.tags)

    def _needed(self, spec: JobSpec, job: int, count: int = 1) -> list[Needed]:
        from stoker.engine.store.needed_jobs import needed_jobs

        before = self._batch or job
        return needed_jobs(self._db, spec.after, before=before, own=job, dependents=count)

    def _shared_values(
        self, spec: JobSpec, now: float, needed: list[Needed], *, more: tuple[str, ...] = ()
    ) -> _SharedValues:
        """`more`: further columns with a value of its own for each job."""
        known = self._contexts.get(id(spec.context))
        if known is None or known[0] is not spec.context:
            code = self._codes.get(id(spec.context), (None, None))[1]
            known = (
                spec.context,
                context_id(self._db, spec.context),
                None if code is None else code.save(self._db),
            )
            self._contexts[id(spec.context)] = known
        if spec.snapshot is not None and self._taker is not None:
            self._taker.save(self._db, spec.snapshot, now)
        blockers = sum(not one.is_met for one in needed)
        later = spec.begin_at if spec.begin_at is not None and spec.begin_at > now else None
        columns: dict[str, object] = {
            "state": HELD if spec.held else QUEUED,
            "ready": int(not spec.held and not blockers and later is None),
            "priority": spec.priority,
            "shell": int(spec.shell),
            "context": known[1],
            "code": known[2],
            "submitted_at": now,
            "name": maybe_bytes(spec.name),
            "time_limit": spec.time_limit,
            "settings": spec.settings.to_json(),
            "eligible_at": later,
            "blockers": blockers or None,
            "stdout": maybe_bytes(spec.stdout),
            "stderr": maybe_bytes(spec.stderr),
            "dedupe": maybe_bytes(spec.dedupe),
            "variables": pack_pairs(spec.variables) or None,
            "sweep": spec.sweep,
            "snapshot": spec.snapshot,
            "array_index": spec.array_index,
        }
        # None is the default of the table, or stands for its 0.
        return _SharedValues({name: one for name, one in columns.items() if one is not None}, more)


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


def _without_known(
    db: Database, chunk: list[JobSpec]
) -> tuple[list[tuple[JobSpec, tuple[int, ...] | None]], tuple[int, ...]]:
    """Split off the jobs whose dedupe key is already in the queue (or earlier in this chunk).

    Returns the others, an array with its indices.
    """
    if all(spec.dedupe is None and spec.array is None for spec in chunk):
        return [(spec, None) for spec in chunk], ()
    fresh: list[tuple[JobSpec, tuple[int, ...] | None]] = []
    existing: list[int] = []
    seen: set[str] = set()

    def is_new(key: str) -> bool:
        known = db.value("SELECT id FROM jobs WHERE dedupe = ?", (to_bytes(key),))
        if known is not None:
            existing.append(int(str(known)))
        is_first = known is None and key not in seen
        seen.add(key)
        return is_first

    for spec in chunk:
        key, indexes = spec.dedupe, _indexes(spec)
        if key is None:
            fresh.append((spec, indexes))
        elif indexes is not None:
            fresh.append((spec, tuple(i for i in indexes if is_new(index_key(key, i)))))
        elif is_new(key):
            fresh.append((spec, None))
    return fresh, tuple(existing)


def _indexes(spec: JobSpec) -> tuple[int, ...] | None:
    if spec.array is None:
        return None
    from stoker.text.array_indexes import parse_array

    return parse_array(spec.array).indexes


def index_key(key: str, index: int) -> str:
    """The dedupe key of one job of an array."""
    return f"{key}_{index}"


def _is_about_earlier_lines(spec: JobSpec) -> bool:
    return any(isinstance(one, AfterSelector) and one.in_file for one in spec.after)


def take_ids(db: Database, count: int) -> int:
    """Reserve ids and return the first; an id is never reused, even after its job is removed."""
    first = int(str(db.value("SELECT value FROM meta WHERE key = 'next_job'")))
    db.execute("UPDATE meta SET value = ? WHERE key = 'next_job'", (first + count,))
    return first


def wait_for(db: Database, rows: list[tuple[object, ...]]) -> None:
    """Record dependencies: a job, and the fields of what it needs."""
    if rows:
        db.executemany("INSERT INTO dependencies VALUES (?, ?, ?, ?)", rows)


def _tag(db: Database, jobs: Iterable[int], tags: tuple[str, ...]) -> None:
    rows = [(to_bytes(tag), job) for job in jobs for tag in tags]
    db.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", rows)
