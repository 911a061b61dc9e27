"""The states of a job and the transitions between them, as a table.

A job is always in exactly one state, and events change it.

- A request to stop is a column of the job (`stop_requested`), not a state, so no state has to
  remember an earlier one.
- A retry is a new attempt of the same job: the job returns to `queued`.
- A rerun by a user is a new job: final states never change.

docs/states.md is generated from this table (`make docs`); a test fails if it is out of date.
"""

from __future__ import annotations

HELD = "held"
QUEUED = "queued"
SUBMITTED = "submitted"
STARTING = "starting"
RUNNING = "running"
STOPPING = "stopping"
DONE = "done"
FAILED = "failed"
CANCELLED = "cancelled"
LOST = "lost"

WAITING = (HELD, QUEUED)
STARTED = (STARTING, RUNNING, STOPPING)
ACTIVE = (SUBMITTED, *STARTED)
FINAL = (DONE, FAILED, CANCELLED, LOST)
STATES = (*WAITING, *ACTIVE, *FINAL)

# What each event means, for the docs.
EVENTS = {
    "hold": "a user holds the job",
    "release": "a user releases the job",
    "claim": "GPUs are assigned and the runner is asked to start the job",
    "submit": "the job is handed to a backend, which starts it when it has room",
    "begin": "the process of the job exists",
    "return": "the job goes back to the queue: it never started, or it is retried or requeued",
    "stop": "a user cancelled the job; its processes are being stopped",
    "succeed": "the job exited with code 0",
    "fail": "the job failed and no retry is left",
    "cancel": "a user cancelled the job, or a dependency was not met",
    "lose": "the job started, none of its processes is alive, and its exit was not recorded",
}

_ENDS = {"return": QUEUED, "succeed": DONE, "fail": FAILED, "cancel": CANCELLED, "lose": LOST}

TABLE: dict[str, dict[str, str]] = {
    HELD: {"release": QUEUED, "cancel": CANCELLED},
    QUEUED: {"hold": HELD, "claim": STARTING, "submit": SUBMITTED, "cancel": CANCELLED},
    SUBMITTED: {"begin": RUNNING, "stop": STOPPING, **_ENDS},
    STARTING: {"begin": RUNNING, "stop": STOPPING, **_ENDS},
    RUNNING: {"stop": STOPPING, **_ENDS},
    STOPPING: dict(_ENDS),
    DONE: {},
    FAILED: {},
    CANCELLED: {},
    LOST: {},
}


class IllegalTransition(Exception):
    """The event is not allowed in the state: a bug in Stoker, never an error of the user."""


def advance(state: str, event: str) -> str:
    """Return the state after `event`. Raises IllegalTransition if the state does not allow it."""
    try:
        return TABLE[state][event]
    except KeyError:
        raise IllegalTransition(f"event {event!r} in state {state!r}") from None


def is_satisfied(state: str, condition: str) -> bool | None:
    """Whether a job in `state` meets a condition (ok, any, notok); None while that is open."""
    if state not in FINAL:
        return None
    return condition == "any" or (state == DONE) == (condition == "ok")
