"""Why a job on a backend waits: what Stoker and the engine of the backend say about it."""

from __future__ import annotations

from stoker.engine.store import arrays
from stoker.engine.store.database import Database
from stoker.engine.store.job_queries import JobRow
from stoker.features.backends import store as backends
from stoker.features.backends import store_allocations as allocations
from stoker.features.backends.options import RAY, SLURM
from stoker.text.plurals import plural

_ENGINES = {SLURM: "Slurm", RAY: "Ray"}


def why_on_backend(db: Database, row: JobRow) -> list[str]:
    """Sentences about a job on a backend that is queued, submitted or running."""
    name = row.request.backend
    found = backends.kind_and_problem(db, name)
    if found is None:
        return [f"the backend `{name}` was removed"]
    kind, text = found
    problem = [] if text is None else [f"the backend `{name}` has a problem: {text}"]
    if row.state == "submitted":
        return [*problem, _submitted(db, row, _ENGINES[kind])]
    if row.state == "queued":
        limit = array_limit_words(db, row)
        if limit:
            return [*problem, limit]
        return problem or [f"it is about to be submitted to the backend `{name}`"]
    where = f" on node {row.node}" if row.node else ""
    if row.request.nodes > 1:
        first = f", the first is {row.node}" if row.node else ""
        return [*problem, f"it is {row.state} on {row.request.nodes} nodes of `{name}`{first}"]
    gpus = f", GPU {row.node_gpus}" if row.node_gpus else ""
    return [*problem, f"it is {row.state} on `{name}`{where}{gpus}"]


def array_limit_words(db: Database, row: JobRow) -> str:
    """Why a job waits whose array has as many jobs on the backend as it may have; otherwise ""."""
    for most in arrays.limits(db, [row.request.array]).values():
        if arrays.active(db, row.request.array) >= most:
            return f"the array runs at most {plural(most, 'job')} at once"
    return ""


def _submitted(db: Database, row: JobRow, engine: str) -> str:
    if row.allocation is None:
        return "it is being submitted"
    one = allocations.load(db, row.allocation)
    if one.state == allocations.RUNNING:
        ahead = allocations.ahead_in_chunk(db, row.allocation, row.id)
        behind = f" after {plural(ahead, 'other job')}" if ahead else " soon"
        return f"it runs{behind} in an allocation on node {one.node}"
    reason = f": {one.reason}" if one.reason else ""
    if engine == _ENGINES[RAY]:  # which has no queue
        return f"it has been handed over to the driver of Ray{reason}"
    number = f" as job {one.engine_id}" if one.engine_id else ""
    return f"it is in the queue of {engine}{number}{reason}"


def short_on_backend(db: Database, row: JobRow) -> str:
    """Why a job of a backend has not started, in a few words."""
    name = row.request.backend
    found = backends.kind_and_problem(db, name)
    if found is None:
        return f"{name} was removed"
    kind, problem = found
    if row.state == "submitted":
        words = unstarted_words(db, row)
        if words.startswith("next on "):
            return words
        where = "handed over to Ray" if kind == RAY else f"in the queue of {_ENGINES[kind]}"
        return f"{where}: {words}" if words else where
    limit = array_limit_words(db, row)
    return f"{name}: {problem}" if problem else limit or f"about to be submitted to {name}"


def unstarted_words(db: Database, row: JobRow) -> str:
    """Why a job on a backend has not started, for a cell; "" if nothing is known."""
    if row.state == "queued":
        found = backends.kind_and_problem(db, row.request.backend)
        return "" if found is None else found[1] or ""
    if row.state != "submitted" or row.allocation is None:
        return ""
    one = allocations.load(db, row.allocation)
    if one.state == allocations.RUNNING:
        return f"next on {one.node}"
    return one.reason or ""
