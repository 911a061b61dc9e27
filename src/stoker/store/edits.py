"""Edit a job that has not started: its columns, request, folder, environment and dependencies."""

from __future__ import annotations

from stoker.core.model import Dependency, Request
from stoker.errors import Conflict
from stoker.store import contexts, events, ready_jobs, request_groups
from stoker.store.database import Database
from stoker.store.submit import context_id, depend


def edit(
    db: Database,
    job: int,
    values: dict[str, object],
    now: float,
    request: Request | None = None,
    *,
    cwd: str | None = None,
    env: tuple[tuple[str, str], ...] = (),
    after: tuple[Dependency, ...] | None = None,
) -> None:
    """Change a waiting job. Raises Conflict if it has started.

    `values` are columns of `jobs`; `env` adds or replaces environment variables.
    """
    changed = [*values, *_names(request=request, cwd=cwd, env=env or None, after=after)]
    with db.transaction():
        row = db.execute(
            "SELECT state, context, request_group FROM jobs WHERE id = ?", (job,)
        ).fetchone()
        state = None if row is None else row[0]
        if state not in ("held", "queued"):
            raise Conflict(
                f"job {job} is {state} and cannot be edited any more",
                f"once it has ended, `stoker rerun --hold {job}` makes a copy that you can edit",
            )
        values = dict(values)
        if cwd is not None or env:
            values["context"] = _changed_context(db, row[1], cwd, env)
        if after is not None:
            values["blockers"] = _replace_dependencies(db, job, after)
        for column, value in values.items():
            db.execute(f"UPDATE jobs SET {column} = ? WHERE id = ?", (value, job))
        if request is not None:
            request_groups.change_request(
                db, job, request, ready_jobs.load_group(db, row[2]).fair_share_group
            )
        db.execute(
            "UPDATE jobs SET kept = NULL, ready = (state = 'queued' AND blockers = 0 AND"
            " (eligible_at IS NULL OR eligible_at <= ?)) WHERE id = ?",
            (now, job),
        )
        events.record_event(db, job, now, "edited", ", ".join(sorted(changed)))


def _names(**given: object) -> list[str]:
    return [name for name, value in given.items() if value is not None]


def _changed_context(
    db: Database, context: int, cwd: str | None, env: tuple[tuple[str, str], ...]
) -> int:
    old = contexts.load_context(db, context)
    merged = tuple({**dict(old.env), **dict(env)}.items())
    return context_id(db, old._replace(cwd=old.cwd if cwd is None else cwd, env=merged))


def _replace_dependencies(db: Database, job: int, after: tuple[Dependency, ...]) -> int:
    """Replace the dependencies of a job; returns how many are not met yet."""
    for needs, _ in after:
        if _waits_for(db, needs, job):
            raise Conflict(f"job {needs} itself waits for job {job}", "neither would ever start")
    db.execute("DELETE FROM dependencies WHERE job = ?", (job,))
    return depend(db, job, after)


def _waits_for(db: Database, job: int, other: int) -> bool:
    """Whether a job waits for another one, directly or through other jobs."""
    reached, left = {job}, [job]
    while left:
        if other in reached:
            return True
        rows = db.execute(
            "SELECT needs FROM dependencies WHERE job = ? AND met = 0", (left.pop(),)
        ).fetchall()
        new = {needs for (needs,) in rows} - reached
        reached |= new
        left += new
    return False
