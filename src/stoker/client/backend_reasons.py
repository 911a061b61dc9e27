"""Why a job on a backend waits: what Stoker and the engine of the backend say about it."""

from __future__ import annotations

from stoker.core.backends.capabilities import RAY, SLURM
from stoker.core.formats.plurals import plural
from stoker.store import allocations, backends
from stoker.store.database import Database
from stoker.store.job_queries import JobRow

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
        return problem or [f"it is about to be submitted to the backend `{name}`"]
    where = f" on node {row.node}" if row.node else ""
    gpus = f", GPU {row.node_gpus}" if row.node_gpus else ""
    return [*problem, f"it is {row.state} on `{name}`{where}{gpus}"]


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


def submitted_words(db: Database, row: JobRow) -> str:
    """Why a submitted job has not started, for a cell."""
    if row.allocation is None:
        return ""
    one = allocations.load(db, row.allocation)
    if one.state == allocations.RUNNING:
        return f"next on {one.node}"
    return one.reason or ""
