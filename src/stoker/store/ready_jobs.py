"""Queued jobs that wait for nothing but devices, and when delayed jobs become ready."""

from __future__ import annotations

from stoker.core.formats.byte_text import maybe_text, unpack_pairs, unpack_words
from stoker.core.model import ReadyJob, Request
from stoker.core.outcome.retry import BACKOFF_CAP_SECONDS
from stoker.core.profiles.gpu_memory import budget
from stoker.core.record import Record
from stoker.store import request_groups
from stoker.store.database import Database
from stoker.store.output_columns import STDERR, STDOUT

_READY_COLUMNS = (
    "j.id, j.priority, j.time_limit, j.submitted_at, f.memory, j.argv, j.shell,"
    f" j.context, j.name, j.attempts, j.grace, {STDOUT}, {STDERR}, j.keep_children, j.batch,"
    " j.batch_index, j.family, j.retries, j.restartable, j.on_oom,"
    " j.variables, j.warn, j.sweep, j.requeues"
)


class RequestGroup(Record):
    """The head of a line is read through this; see `read_line`."""

    id: int
    request: Request
    share: str


def ready_groups(db: Database) -> list[int]:
    """The lines with ready jobs, by hopping through the index, not scanning it."""
    rows = db.execute(
        "WITH RECURSIVE hop(line) AS ("
        " SELECT min(line) FROM jobs WHERE ready = 1"
        " UNION ALL SELECT (SELECT min(line) FROM jobs WHERE ready = 1 AND line > hop.line)"
        " FROM hop WHERE hop.line IS NOT NULL) SELECT line FROM hop WHERE line IS NOT NULL"
    )
    return [row[0] for row in rows]


def load_group(db: Database, id: int) -> RequestGroup:
    return RequestGroup(id, *request_groups.read_line(db, id))


def first(
    db: Database, line: RequestGroup, limit: int, clock_offset: float = 0.0
) -> list[ReadyJob]:
    """The first ready jobs of one line, in order. `clock_offset` is wall time less monotonic."""
    rows = db.execute(
        f"SELECT {_READY_COLUMNS} FROM jobs j LEFT JOIN families f ON f.id = j.family"
        " WHERE j.ready = 1 AND j.line = ? ORDER BY j.priority DESC, j.id LIMIT ?",
        (line.id, limit),
    )
    return [_ready_job(row, line, clock_offset) for row in rows]


def _ready_job(row: tuple[object, ...], line: RequestGroup, clock_offset: float) -> ReadyJob:
    (id, priority, limit, submitted, memory, argv, shell, context, name, attempts, grace,
     out, err, keep, batch, index, family, retries, restartable, on_oom, variables,
     warn, sweep, requeues) = row  # fmt: skip
    return ReadyJob(
        id, priority, resolve(line.request, memory), limit, line.share,  # type: ignore[arg-type]
        submitted - clock_offset, unpack_words(argv), bool(shell), context,  # type: ignore[arg-type, operator]
        maybe_text(name), attempts, grace, maybe_text(out), maybe_text(err),  # type: ignore[arg-type]
        bool(keep), batch, index, family, line.id, retries, bool(restartable), on_oom,  # type: ignore[arg-type]
        unpack_pairs(variables) if variables else (), warn, sweep, requeues,  # type: ignore[arg-type]
    )  # fmt: skip


def resolve(request: Request, learned: int | None) -> Request:
    """A request for memory as learned becomes one for bytes, once something was learned."""
    if request.is_auto and learned:
        return request._replace(memory=budget(learned))
    return request


def release_due(db: Database, now: float) -> int:
    """Make delayed jobs ready whose time has come.

    A back-off that seems further away than any can be was written before the clock was set back
    while nobody was looking; it counts from now.
    """
    db.execute(
        "UPDATE jobs INDEXED BY jobs_delayed SET eligible_at = ?1 WHERE state = 'queued'"
        " AND ready = 0 AND blockers = 0 AND attempts > 0 AND eligible_at > ?1",
        (now + BACKOFF_CAP_SECONDS,),
    )
    return db.execute(
        "UPDATE jobs INDEXED BY jobs_delayed SET ready = 1 WHERE state = 'queued' AND ready = 0"
        " AND blockers = 0 AND eligible_at <= ?",
        (now,),
    ).rowcount


def next_due(db: Database) -> float | None:
    """When the next delayed job may run."""
    due = db.value(
        "SELECT min(eligible_at) FROM jobs INDEXED BY jobs_delayed"
        " WHERE state = 'queued' AND ready = 0 AND blockers = 0"
    )
    return None if due is None else float(str(due))


def shift_backoffs(db: Database, delta: float) -> None:
    """The wall clock jumped: back-offs move along, begin times that people gave do not."""
    db.execute(
        "UPDATE jobs INDEXED BY jobs_delayed SET eligible_at = eligible_at + ?"
        " WHERE state = 'queued' AND ready = 0 AND blockers = 0 AND attempts > 0",
        (delta,),
    )
