"""Changes of one job, with a sentence about the result."""

from __future__ import annotations

from stoker.client.queue import Queue
from stoker.engine.store import job_queries
from stoker.errors import Conflict
from stoker.states import FINAL, WAITING

_STEPS = {"raise": 1, "lower": -1}


def act(queue: Queue, action: str, id: int) -> str:
    """Change a job. Raises Conflict if its state does not allow that, and NotFound."""
    row = job_queries.job(queue.db, id)
    if action == "cancel":
        cancelled, stopping = queue.cancel([id])
        if not cancelled and not stopping:
            raise Conflict(f"job {id} has already finished: {row.state}")
        return f"job {id} is stopping" if stopping else f"job {id} cancelled"
    if action == "rerun":
        if row.state not in FINAL:
            raise Conflict(f"job {id} has not finished (state: {row.state}): it cannot be rerun")
        return f"job {queue.rerun([id])[0]} queued: a rerun of job {id}"
    if row.state not in WAITING:
        what = "held" if action == "hold" else "moved in the queue"
        raise Conflict(f"job {id} does not wait (state: {row.state}): it cannot be {what}")
    if action == "hold":
        if row.state == "held":
            queue.release([id])
            return f"job {id} released"
        queue.hold([id])
        return f"job {id} held"
    priority = row.priority + _STEPS[action]
    queue.set_priority([id], priority)
    return f"job {id} has priority {priority}"
