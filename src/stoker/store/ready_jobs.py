"""Queued jobs that wait only for devices, and when delayed jobs become ready."""

from __future__ import annotations

from stoker.core.formats.byte_text import maybe_text, unpack_pairs, unpack_words
from stoker.core.job_settings import settings_from_json
from stoker.core.model import ReadyJob, Request
from stoker.core.outcome.retry import BACKOFF_CAP_SECONDS
from stoker.core.profiles.gpu_memory import budget
from stoker.core.record import Record
from stoker.store import request_groups
from stoker.store.database import Database
from stoker.store.device_column import parse_device_numbers
from stoker.store.output_columns import expand_output, own_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_READY_COLUMNS = (
    "j.id, j.priority, j.time_limit, j.submitted_at, p.memory, p.provisional_memory,"
    " p.host_memory, j.argv, j.shell,"
    " j.context, j.name, j.attempts, j.stdout, j.stderr, j.settings, j.batch, j.batch_index,"
    " j.profile, j.variables, j.sweep, j.requeues, j.preemptions, j.kept, j.snapshot,"
    " j.array_index, j.code"
)


class RequestGroup(Record):
    """A request group: the request and the fair-share group that its jobs have in common."""

    id: int
    request: Request
    fair_share_group: str


# Skips from group to group in the index, so it does not depend on the number of jobs.
_GROUPS_BY_BACKEND = (
    "WITH RECURSIVE found(id) AS ("
    " SELECT min(request_group) FROM jobs WHERE ready = 1"
    " UNION ALL SELECT"
    " (SELECT min(request_group) FROM jobs WHERE ready = 1 AND request_group > found.id)"
    " FROM found WHERE id IS NOT NULL) SELECT id FROM found WHERE id IS NOT NULL"
    " AND (SELECT backend FROM request_groups WHERE id = found.id)"
)


def ready_groups(db: Database, backend: str = "") -> list[int]:
    """Return the ids of the request groups with ready jobs for a backend, by default this host."""
    return [row[0] for row in db.execute(f"{_GROUPS_BY_BACKEND} = ?", (backend,))]


def ready_groups_elsewhere(db: Database) -> list[int]:
    """Return the ids of the request groups with ready jobs for all backends but this host."""
    return [row[0] for row in db.execute(f"{_GROUPS_BY_BACKEND} != ''")]


def load_group(db: Database, id: int) -> RequestGroup:
    request, fair_share_group = request_groups.load(db, id)
    return RequestGroup(id, request, fair_share_group)


def first(
    db: Database, group: RequestGroup, limit: int, clock_offset: float = 0.0
) -> list[ReadyJob]:
    """Return the first ready jobs of a request group, in order.

    `clock_offset` is wall-clock time minus monotonic time.
    """
    rows = db.execute(
        f"SELECT {_READY_COLUMNS} FROM jobs j LEFT JOIN profiles p ON p.id = j.profile"
        " WHERE j.ready = 1 AND j.request_group = ? ORDER BY j.priority DESC, j.id LIMIT ?",
        (group.id, limit),
    )
    return [_ready_job(row, group, clock_offset) for row in rows]


def with_kept_devices(db: Database, clock_offset: float = 0.0) -> list[ReadyJob]:
    """Return the ready jobs for which devices are being vacated, wherever they are in the queue."""
    rows = db.execute(
        f"SELECT {_READY_COLUMNS}, j.request_group FROM jobs j INDEXED BY jobs_kept"
        " LEFT JOIN profiles p ON p.id = j.profile"
        " WHERE j.kept IS NOT NULL AND j.ready = 1 ORDER BY j.id"
    ).fetchall()
    return [_ready_job(row[:-1], load_group(db, row[-1]), clock_offset) for row in rows]


def _ready_job(row: tuple[Any, ...], group: RequestGroup, clock_offset: float) -> ReadyJob:
    (id, priority, limit, submitted, memory, provisional, host_memory, argv, shell, context, name,
     attempts, out, err, settings, batch, index, profile, variables, sweep, requeues, preemptions,
     kept, snapshot, array_index, code) = row  # fmt: skip
    if out is not None or err is not None:
        node = None if group.request.backend else own_node()
        place = (batch, index if array_index is None else array_index)
        out = expand_output(out, job=id, name=name, array=place, node=node)
        err = expand_output(err, job=id, name=name, array=place, node=node)
    return ReadyJob(
        id=id,
        priority=priority,
        request=resolve(group.request, profile, memory, provisional, host_memory),
        time_limit=limit,
        fair_share_group=group.fair_share_group,
        since=submitted - clock_offset,
        argv=unpack_words(argv),
        shell=bool(shell),
        context=context,
        name=maybe_text(name),
        attempts=attempts,
        stdout=out,
        stderr=err,
        settings=settings_from_json(settings),
        batch=batch,
        batch_index=index,
        profile=profile,
        request_group=group.id,
        variables=unpack_pairs(variables) if variables else (),
        sweep=sweep,
        requeues=requeues,
        preemptions=preemptions,
        kept=parse_device_numbers(kept) if kept else (),
        snapshot=snapshot,
        array_index=array_index,
        code=code,
    )


def resolve(
    request: Request,
    profile: int,
    peak: int | None,
    provisional: int | None = None,
    host_peak: int | None = None,
) -> Request:
    """Replace `--gpu-mem auto` and `--mem auto` by bytes if the command profile has estimates.

    `provisional`: bytes of GPU memory to reserve as long as no peak is known.
    """
    if request.is_auto:
        request = request._replace(memory=budget(peak) if peak else provisional, profile=profile)
    if request.is_auto_host and host_peak:
        request = request._replace(host_memory=budget(host_peak))
    return request


def release_due(db: Database, now: float) -> int:
    """Make delayed jobs ready whose time has come; returns their number.

    A backoff longer than the longest possible one was written before the wall clock was set back
    while no daemon was running; it is shortened to the longest one from now.
    """
    db.execute(
        "UPDATE jobs INDEXED BY jobs_delayed SET eligible_at = ? WHERE state = 'queued'"
        " AND ready = 0 AND blockers = 0 AND attempts > 0 AND eligible_at > ?",
        (now + BACKOFF_CAP_SECONDS,) * 2,
    )
    return db.execute(
        "UPDATE jobs INDEXED BY jobs_delayed SET ready = 1 WHERE state = 'queued' AND ready = 0"
        " AND blockers = 0 AND eligible_at <= ?",
        (now,),
    ).rowcount


def next_due(db: Database) -> float | None:
    """Return when the next delayed job may run (wall clock); None if there is none."""
    due = db.value(
        "SELECT min(eligible_at) FROM jobs INDEXED BY jobs_delayed"
        " WHERE state = 'queued' AND ready = 0 AND blockers = 0"
    )
    return None if due is None else float(str(due))


def shift_backoffs(db: Database, delta: float) -> None:
    """Shift backoffs after a jump of the wall clock. Begin times set by users stay."""
    db.execute(
        "UPDATE jobs INDEXED BY jobs_delayed SET eligible_at = eligible_at + ?"
        " WHERE state = 'queued' AND ready = 0 AND blockers = 0 AND attempts > 0",
        (delta,),
    )
