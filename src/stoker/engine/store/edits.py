"""Edit a job that has not started: its columns, request, folder, environment and dependencies."""

from __future__ import annotations

from stoker.engine.job_settings import JobSettings, settings_from_json, settings_of
from stoker.engine.model import AfterSelector, Dependency, Request
from stoker.engine.store import arrays, contexts, events, ready_jobs, request_groups
from stoker.engine.store.database import Database
from stoker.engine.store.needed_jobs import needed_jobs
from stoker.engine.store.submit import context_id, wait_for
from stoker.errors import Conflict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.engine.store.submit import NewCode


def edit(
    db: Database,
    job: int,
    values: dict[str, object],
    now: float,
    request: Request | None = None,
    *,
    cwd: str | None = None,
    env: tuple[tuple[str, str], ...] = (),
    after: tuple[Dependency | AfterSelector, ...] | None = None,
    code: NewCode | None = None,
) -> None:
    """Change a waiting job. Raises Conflict if it has started.

    `values` are columns of `jobs`, or fields of JobSettings; `env` adds or replaces environment
    variables; `code` is the state of the code in `cwd`.
    """
    changed = [*values, *_names(request=request, cwd=cwd, env=env or None, after=after)]
    with db.transaction():
        row = db.execute(
            "SELECT state, context, request_group, settings FROM jobs WHERE id = ?", (job,)
        ).fetchone()
        state = None if row is None else row[0]
        if state not in ("held", "queued"):
            raise Conflict(
                f"job {job} is {state} and cannot be edited any more",
                f"once it has ended, `stoker rerun --hold {job}` makes a copy that you can edit",
            )
        values = dict(values)
        new = {name: values.pop(name) for name in JobSettings._fields if name in values}
        if new:
            settings = settings_of({**settings_from_json(row[3]).values(), **new})
            values["settings"] = settings.to_json()
        if cwd is not None or env:
            values["context"] = _changed_context(db, row[1], cwd, env)
        if cwd is not None:
            values["code"] = None if code is None else code.save(db)
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


def _replace_dependencies(
    db: Database, job: int, after: tuple[Dependency | AfterSelector, ...]
) -> int:
    """Replace the dependencies of a job; returns how many are not met yet."""
    needed = needed_jobs(db, after, without=job)
    for one in needed:
        if _waits_for(db, one.job, job):
            raise Conflict(f"job {one.job} itself waits for job {job}", "neither would ever start")
    db.execute("DELETE FROM dependencies WHERE job = ?", (job,))
    wait_for(db, [(job, *one) for one in needed])
    return sum(not one.is_met for one in needed)


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


def set_array_limit(db: Database, array: int, most: int | None) -> None:
    """Change how many jobs of an array run at once; None: no limit.

    Jobs of an array that had no limit are moved to request groups of their own; those of them that
    run already are not counted.
    """
    with db.transaction():
        arrays.set_limit(db, array, most)
        rows = db.execute(
            "SELECT DISTINCT request_group FROM jobs WHERE batch = ? AND array_index IS NOT NULL"
            " AND state IN ('held', 'queued')",
            (array,),
        ).fetchall()
        for (old,) in rows:
            group = ready_jobs.load_group(db, old)
            if most is not None and not group.request.array:
                request = group.request._replace(array=array)
                new = request_groups.group_id(db, request, group.fair_share_group)
                db.execute(
                    "UPDATE jobs SET request_group = ? WHERE batch = ? AND array_index IS NOT NULL"
                    " AND state IN ('held', 'queued') AND request_group = ?",
                    (new, array, old),
                )
