"""Queued jobs that wait only for devices, and when delayed jobs become ready."""

from __future__ import annotations

from stoker.engine.job_settings import settings_from_json
from stoker.engine.model import ReadyJob, Request
from stoker.engine.outcome.retry import BACKOFF_CAP_SECONDS
from stoker.engine.profiles.gpu_memory import budget
from stoker.engine.store import request_groups
from stoker.engine.store.database import Database, columns
from stoker.engine.store.device_column import parse_device_numbers
from stoker.engine.store.output_columns import expand_outputs, own_node
from stoker.record import Record
from stoker.text.byte_text import maybe_text, unpack_pairs, unpack_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The SQL of the fields of ReadyJob, and of what they are made of.
_COLUMNS = columns(
    "id priority time_limit submitted_at argv shell context name attempts stdout stderr settings"
    " batch batch_index profile variables sweep requeues preemptions kept snapshot array_index code"
    " request_group"
) | {
    "memory": "p.memory",
    "provisional_memory": "p.provisional_memory",
    "host_memory": "p.host_memory",
}
_READY = f"SELECT {', '.join(_COLUMNS.values())} FROM jobs j"
_PROFILE = " LEFT JOIN profiles p ON p.id = j.profile"


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
        f"{_READY}{_PROFILE}"
        " WHERE j.ready = 1 AND j.request_group = ? ORDER BY j.priority DESC, j.id LIMIT ?",
        (group.id, limit),
    )
    return [_ready_job(row, group, clock_offset) for row in rows]


def with_kept_devices(db: Database, clock_offset: float = 0.0) -> list[ReadyJob]:
    """Return the ready jobs for which devices are being vacated, wherever they are in the queue."""
    rows = db.execute(
        f"{_READY} INDEXED BY jobs_kept{_PROFILE}"
        " WHERE j.kept IS NOT NULL AND j.ready = 1 ORDER BY j.id"
    ).fetchall()
    at = list(_COLUMNS).index("request_group")
    return [_ready_job(row, load_group(db, row[at]), clock_offset) for row in rows]


def _ready_job(row: tuple[Any, ...], group: RequestGroup, clock_offset: float) -> ReadyJob:
    fields = dict(zip(_COLUMNS, row, strict=True))
    expand_outputs(fields, fields["id"], None if group.request.backend else own_node())
    memory = [fields.pop(key) for key in ("memory", "provisional_memory", "host_memory")]
    fields["request"] = resolve(group.request, fields["profile"], *memory)
    fields["fair_share_group"] = group.fair_share_group
    fields["since"] = fields.pop("submitted_at") - clock_offset
    fields["argv"] = unpack_words(fields["argv"])
    fields["shell"] = bool(fields["shell"])
    fields["name"] = maybe_text(fields["name"])
    fields["settings"] = settings_from_json(fields["settings"])
    fields["variables"] = unpack_pairs(fields["variables"] or b"")
    fields["kept"] = parse_device_numbers(fields["kept"] or "")
    return ReadyJob(**fields)


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
