"""What the loop does after a sample of GPU memory (see memory_watch.py)."""

from __future__ import annotations

from stoker.record import Record


class PauseJob(Record):
    """Stop the processes of a follower until the memory of the leader is known."""

    attempt: int
    why: str


class ContinueJob(Record):
    """Continue a paused follower."""

    attempt: int


class RequeueJob(Record):
    """Stop a job and return it to the queue; that is not a failure."""

    attempt: int
    why: str
    at_once: bool  # it has done nothing on the GPU yet, so it gets no grace period


class SetClaim(Record):
    """The bytes that a running job reserves from now on."""

    attempt: int
    memory: int


class MemoryLearned(Record):
    """The memory of jobs of a command profile, from one that is running.

    `provisional`: bytes to reserve for each of them while no final peak is known.
    """

    profile: int
    peak: int
    provisional: int | None = None


MemoryAction = PauseJob | ContinueJob | RequeueJob | SetClaim | MemoryLearned
