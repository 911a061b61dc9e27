"""The life of a job, as a table. Everything about states lives in this file.

A job is always in exactly one state. Events move it; an event that the table does not list for a
state is refused and changes nothing. A wish to stop is a fact beside the state (`stop_requested`),
never a state of its own, so nothing here has to remember what it was before. A retry is a new
attempt of the same job: the job goes back to `queued`. A rerun asked for by a person is a new job:
final states never change.

docs/states.md is printed from this table; a test fails when it is stale.
"""

from __future__ import annotations

HELD = "held"
QUEUED = "queued"
STARTING = "starting"
RUNNING = "running"
STOPPING = "stopping"
DONE = "done"
FAILED = "failed"
CANCELLED = "cancelled"
LOST = "lost"

WAITING = (HELD, QUEUED)
ACTIVE = (STARTING, RUNNING, STOPPING)
FINAL = (DONE, FAILED, CANCELLED, LOST)
STATES = (*WAITING, *ACTIVE, *FINAL)

# What each event means, in the words of the docs.
EVENTS = {
    "hold": "somebody wants it to wait",
    "release": "it may run",
    "claim": "devices were found and the start was ordered",
    "begin": "its process exists",
    "return": "the start never happened (proved), or it may run again",
    "stop": "cancelled or out of time: its processes are being ended",
    "succeed": "it ended with exit code 0",
    "fail": "it ended otherwise and no retry is left",
    "cancel": "a person or a failed dependency ended it",
    "lose": "it began, nothing of it is alive, and nobody saw how it ended",
}

_ENDS = {"return": QUEUED, "succeed": DONE, "fail": FAILED, "cancel": CANCELLED, "lose": LOST}

TABLE: dict[str, dict[str, str]] = {
    HELD: {"release": QUEUED, "cancel": CANCELLED},
    QUEUED: {"hold": HELD, "claim": STARTING, "cancel": CANCELLED},
    STARTING: {"begin": RUNNING, "stop": STOPPING, **_ENDS},
    RUNNING: {"stop": STOPPING, **_ENDS},
    STOPPING: dict(_ENDS),
    DONE: {},
    FAILED: {},
    CANCELLED: {},
    LOST: {},
}


class IllegalMove(Exception):
    """An event met a state that does not know it: a bug of ours, never a user's mistake."""


def advance(state: str, event: str) -> str:
    """The state after `event`, or IllegalMove."""
    try:
        return TABLE[state][event]
    except KeyError:
        raise IllegalMove(f"event {event!r} in state {state!r}") from None


def sources(event: str) -> tuple[str, ...]:
    """All states in which `event` is legal; the store's WHERE clauses come from here."""
    return tuple(state for state, moves in TABLE.items() if event in moves)
