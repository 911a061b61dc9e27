"""Changes by users, made by the client process, with or without a daemon.

Waiting jobs are changed directly. A running job is only marked (`stop_requested`); the loop then
stops it. Each change is one transaction per chunk of jobs, so the loop never sees half of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from stoker.engine.store import arrays, dependencies, events, meta, reruns
from stoker.engine.store.database import Database, id_list
from stoker.engine.store.reruns import NewPlace
from stoker.states import ACTIVE, FINAL

_FINAL = ", ".join(f"'{state}'" for state in FINAL)
_ACTIVE = ", ".join(f"'{state}'" for state in ACTIVE)
_CHUNK = 2000
_TABLES = (
    ("jobs", "id"),
    ("attempts", "job"),
    ("tags", "job"),
    ("events", "job"),
    ("dependencies", "job"),
    ("job_metrics", "job"),
    ("job_annotations", "job"),
)


def _chunks(ids: list[int]) -> Iterable[list[int]]:
    for start in range(0, len(ids), _CHUNK):
        yield ids[start : start + _CHUNK]


def cancel(db: Database, ids: list[int], now: float, grace: float | None = None) -> tuple[int, int]:
    """Return the numbers of waiting jobs cancelled and of running jobs that will be stopped."""
    ended = stopping = 0
    for chunk in _chunks(ids):
        with db.transaction():
            for job in chunk:
                if dependencies.cancel_waiting(db, job, "user", now):
                    ended += 1
                    continue
                stopping += db.execute(
                    # A second request may shorten the grace of the first, never extend it.
                    "UPDATE jobs SET stop_requested = coalesce(stop_requested, :now),"
                    " settings = CASE WHEN :grace IS NULL THEN settings ELSE"
                    "  json_set(coalesce(settings, '{}'), '$.grace',"
                    "   CASE WHEN stop_requested IS NULL THEN :grace"
                    "   ELSE min(:grace, coalesce(json_extract(settings, '$.grace'), :grace)) END)"
                    " END WHERE id = :job"
                    f" AND state IN ({_ACTIVE})",
                    {"now": now, "grace": grace, "job": job},
                ).rowcount
    return ended, stopping


def hold(db: Database, ids: list[int], now: float) -> int:
    changed = 0
    for chunk in _chunks(ids):
        with db.transaction():
            for job in chunk:
                moved = db.execute(
                    "UPDATE jobs SET state = 'held', ready = 0, kept = NULL"
                    " WHERE id = ? AND state = 'queued'",
                    (job,),
                ).rowcount
                if moved:
                    events.record_event(db, job, now, "held")
                changed += moved
    return changed


def release(db: Database, ids: list[int], now: float) -> int:
    changed = 0
    for chunk in _chunks(ids):
        with db.transaction():
            for job in chunk:
                moved = db.execute(
                    "UPDATE jobs SET state = 'queued', ready = (blockers = 0 AND"
                    " (eligible_at IS NULL OR eligible_at <= ?)) WHERE id = ? AND state = 'held'",
                    (now, job),
                ).rowcount
                if moved:
                    events.record_event(db, job, now, "released")
                changed += moved
    return changed


def rerun(
    db: Database,
    ids: list[int],
    now: float,
    held: bool = False,
    places: dict[int, NewPlace] | None = None,
    token: str | None = None,
) -> list[int]:
    """Submit finished jobs again, in `places` or with the same code; returns the new ids.

    With a token, the same call can be repeated and adds nothing twice
    (engine/store/submit_tokens.py).
    """
    from stoker.engine.store import submit_tokens

    places = places or {}
    reruns.check_dependencies(db, ids)
    new_ids: dict[int, int] = {}
    for number, chunk in enumerate(_chunks(sorted(ids))):  # dependencies have lower ids
        with db.transaction():
            known = None if token is None else submit_tokens.receipt(db, token, number)
            if known is not None:
                new_ids.update(zip(chunk, known["jobs"], strict=True))
                continue
            for job in chunk:
                new_ids[job] = reruns.copy(db, job, now, held, new_ids, places.get(job))
            if token is not None:
                jobs = [new_ids[job] for job in chunk]
                submit_tokens.save_receipt(db, token, number, {"jobs": jobs}, now)
    return [new_ids[job] for job in ids]


def set_priority(db: Database, ids: list[int], priority: int, now: float) -> int:
    changed = 0
    for chunk in _chunks(ids):
        with db.transaction():
            for job in chunk:
                moved = db.execute(
                    "UPDATE jobs SET priority = ? WHERE id = ? AND state IN ('held', 'queued')",
                    (priority, job),
                ).rowcount
                if moved:
                    events.record_event(db, job, now, "priority", str(priority))
                changed += moved
    return changed


def remove(db: Database, ids: list[int]) -> dict[int, int]:
    """Remove final jobs; returns their ids with the number of attempts of each.

    Each chunk is one transaction, so that the daemon gets the write lock in between.
    """
    all_removed: dict[int, int] = {}
    for chunk in _chunks(ids):
        with db.transaction():
            final = db.execute(
                "SELECT id, attempts FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
                f" AND state IN ({_FINAL})",
                (id_list(chunk),),
            ).fetchall()
            removed = (id_list([job for job, _ in final]),)
            db.execute(  # trials remember how their jobs ended
                "UPDATE trials SET state = (SELECT state FROM jobs WHERE id = trials.job)"
                " WHERE job IN (SELECT value FROM json_each(?))",
                removed,
            )
            known_arrays = arrays.of_jobs(db, [job for job, _ in final])
            for table, column in _TABLES:
                db.execute(
                    f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))",
                    removed,
                )
            arrays.remove_empty(db, known_arrays)
        all_removed.update(final)
    return all_removed


def set_draining(db: Database, draining: bool) -> None:
    with db.transaction():
        meta.set_meta(db, "draining", int(draining))


def change_device_settings(db: Database, uuid: str, values: dict[str, object]) -> None:
    """Set columns of `device_settings`: persistent settings of a GPU."""
    with db.transaction():
        db.execute("INSERT OR IGNORE INTO device_settings (uuid) VALUES (?)", (uuid,))
        for column, value in values.items():
            db.execute(f"UPDATE device_settings SET {column} = ? WHERE uuid = ?", (value, uuid))
