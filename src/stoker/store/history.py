"""Ids of the jobs to show: pages of history, the first waiting jobs, the last finished jobs.

Each function reads a bounded number of rows, regardless of the size of the database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice

from stoker.core.formats.byte_text import to_bytes, to_text
from stoker.core.record import Record
from stoker.core.states import FINAL, QUEUED, STATES
from stoker.store import notes, ready_jobs
from stoker.store.database import Database
from stoker.store.interrupted_jobs import interrupted

# The maximum number of rows that one page scans for its filters; the next page continues there.
_MAX_SCANNED = 20_000
_ENDED_OF_EACH = 50
_MAX_ID = 1 << 62


class Filters(Record):
    states: tuple[str, ...] | None = None
    tag: str | None = None
    name: str | None = None
    sweep: int | None = None
    text: str | None = None  # in command or name, in any case
    backend: str | None = None  # "" is this host
    starred: bool = False  # only jobs with a star


def history_page(
    db: Database, filters: Filters, before: int | None, limit: int
) -> tuple[list[int], int]:
    """Return jobs, newest first, and the value of `before` for the next page (0: no more)."""
    found: list[int] = []
    last = 0
    walk = _candidates(db, filters, _MAX_ID if before is None else before)
    for scanned, job in enumerate(walk):
        if len(found) == limit or scanned == _MAX_SCANNED:
            return found, last
        last = job
        if _fits(db, filters, job):
            found.append(job)
    return found, 0


def _candidates(db: Database, filters: Filters, before: int) -> Iterator[int]:
    """Yield ids in descending order from the most selective index; `_fits` checks the rest."""
    if filters.name is not None:
        yield from _column(
            db,
            "SELECT id FROM jobs WHERE name = ? AND id < ? ORDER BY id DESC",
            (to_bytes(filters.name), before),
        )
    elif filters.starred:
        yield from _column(
            db,
            "SELECT job FROM job_annotations WHERE starred = 1 AND job < ? ORDER BY job DESC",
            (before,),
        )
    elif filters.tag is not None:
        yield from _column(
            db,
            "SELECT job FROM tags WHERE tag = ? AND job < ? ORDER BY job DESC",
            (to_bytes(filters.tag), before),
        )
    elif filters.sweep is not None:
        sql = (
            "SELECT id FROM jobs INDEXED BY jobs_by_sweep WHERE sweep = ? AND state = ?"
            " AND id < ? ORDER BY id DESC"
        )
        states = filters.states or STATES
        walks = [_column(db, sql, (filters.sweep, state, before)) for state in states]
        yield from merge(*walks, reverse=True)
    elif filters.states is not None:
        sql = "SELECT id FROM jobs WHERE state = ? AND id < ? ORDER BY id DESC"
        walks = [_column(db, sql, (state, before)) for state in filters.states]
        yield from merge(*walks, reverse=True)
    else:
        yield from _column(db, "SELECT id FROM jobs WHERE id < ? ORDER BY id DESC", (before,))


def _column(db: Database, sql: str, values: tuple[object, ...]) -> Iterator[int]:
    for row in db.execute(sql, values):
        yield int(row[0])


def _fits(db: Database, filters: Filters, job: int) -> bool:
    row = db.execute(
        "SELECT state, name, sweep, argv, (SELECT backend FROM request_groups WHERE id ="
        " request_group) FROM jobs WHERE id = ?",
        (job,),
    ).fetchone()
    if row is None:
        return False
    state, name, sweep, argv, backend = row
    if filters.backend is not None and backend != filters.backend:
        return False
    if filters.states is not None and state not in filters.states:
        return False
    if filters.sweep is not None and sweep != filters.sweep:
        return False
    # The candidates are by one of these.
    if filters.starred and not notes.is_starred(db, notes.JOB, job):
        return False
    if filters.tag is not None:
        tagged = "SELECT 1 FROM tags WHERE tag = ? AND job = ?"
        if db.value(tagged, (to_bytes(filters.tag), job)) is None:
            return False
    if not filters.text:
        return True
    wanted = filters.text.lower()
    return any(wanted in to_text(one).lower() for one in (argv, name) if one is not None)


# -- the overview ---------------------------------------------------------------------------------


def ready(db: Database, limit: int) -> list[int]:
    """Return jobs that wait only for devices of this host, by priority and id."""
    return _first_ready(db, ready_jobs.ready_groups(db), limit)


def on_backends(db: Database, limit: int) -> list[int]:
    """Return jobs that backends have and did not start yet, then jobs to be handed over to them."""
    submitted = db.execute(
        "SELECT id FROM jobs WHERE state = 'submitted' ORDER BY id LIMIT ?", (limit,)
    )
    found = [row[0] for row in submitted]
    found += _first_ready(db, ready_jobs.ready_groups_elsewhere(db), limit)
    return found[:limit]


def _first_ready(db: Database, groups: list[int], limit: int) -> list[int]:
    first: list[tuple[int, int]] = []
    for group in groups:
        first += db.execute(
            "SELECT -priority, id FROM jobs INDEXED BY jobs_ready"
            " WHERE ready = 1 AND request_group = ? ORDER BY priority DESC, id LIMIT ?",
            (group, limit),
        )
    return [job for _, job in sorted(first)[:limit]]


def unready(db: Database, limit: int) -> list[int]:
    """Return jobs that wait for another job, for their begin time, or to be released."""
    delayed = db.execute(
        "SELECT id FROM jobs INDEXED BY jobs_delayed WHERE state = 'queued' AND ready = 0"
        " AND blockers = 0 ORDER BY eligible_at LIMIT ?",
        (limit,),
    )
    blocked = db.execute(
        "SELECT j.id FROM (SELECT job FROM dependencies WHERE met = 0 LIMIT 2000) d"
        " JOIN jobs j ON j.id = d.job WHERE j.state = 'queued' LIMIT ?",
        (4 * limit,),
    )
    held = db.execute("SELECT id FROM jobs WHERE state = 'held' ORDER BY id LIMIT ?", (limit,))
    found = dict.fromkeys(row[0] for rows in (delayed, blocked, held) for row in rows)
    found |= {job: None for job, (_, after) in interrupted(db).items() if after == QUEUED}
    return list(islice(found, limit))


def recently_ended(db: Database, limit: int, also: Iterable[int] = ()) -> list[int]:
    """Return the jobs that finished last.

    Only the newest ids of each state are checked; `also` adds long jobs, which have older ids.
    """
    times: dict[int, float] = {}
    for state in FINAL:
        rows = db.execute(
            "SELECT id, ended_at FROM jobs WHERE state = ? ORDER BY id DESC LIMIT ?",
            (state, max(limit, _ENDED_OF_EACH)),
        )
        times.update((job, at or 0.0) for job, at in rows)
    for job, (_, after) in interrupted(db).items():
        if after in FINAL:  # by a restart of the host
            times[job] = float("inf")
    for job in also:
        row = db.execute("SELECT state, ended_at FROM jobs WHERE id = ?", (job,)).fetchone()
        if row is not None and row[0] in FINAL:
            times[job] = row[1] or 0.0
    return sorted(times, key=lambda job: (times[job], job), reverse=True)[:limit]


def top_priority(db: Database, without: set[int]) -> int | None:
    """Return the highest priority of the ready jobs except these; None if there are none."""
    for job in ready(db, len(without) + 1):
        if job not in without:
            return int(str(db.value("SELECT priority FROM jobs WHERE id = ?", (job,))))
    return None


def newest_sweeps(db: Database, limit: int) -> list[str]:
    rows = db.execute("SELECT name FROM sweeps ORDER BY id DESC LIMIT ?", (limit,))
    return [to_text(row[0]) for row in rows]


def newest_words(db: Database, what: str, jobs: int, limit: int) -> list[str]:
    """Return the names or tags (`what`) of the newest jobs, the newest first."""
    if what == "tag":
        sql = (
            "SELECT tag FROM tags INDEXED BY tags_by_job WHERE job > (SELECT max(id) - ? FROM jobs)"
            " GROUP BY tag ORDER BY max(job) DESC LIMIT ?"
        )
    else:
        sql = (
            "SELECT name FROM (SELECT name, id FROM jobs ORDER BY id DESC LIMIT ?)"
            " WHERE name IS NOT NULL GROUP BY name ORDER BY max(id) DESC LIMIT ?"
        )
    return [to_text(row[0]) for row in db.execute(sql, (jobs, limit))]
