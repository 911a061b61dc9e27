"""Ids of the jobs of an overview: the first waiting jobs, the last finished jobs.

Each function reads a bounded number of rows, regardless of the size of the database.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from stoker.engine.store import ready_jobs
from stoker.engine.store.database import Database
from stoker.engine.store.interrupted_jobs import interrupted
from stoker.states import FINAL, QUEUED
from stoker.text.byte_text import to_text

_ENDED_OF_EACH = 50


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
