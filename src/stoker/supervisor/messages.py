"""What passes between the loop and whoever parents the jobs."""

from __future__ import annotations

from stoker.core.model import Outcome
from stoker.core.record import Record

INHERIT = "-"  # for stderr: ours, although stdout is a file


class Order(Record):
    """Start this attempt. Everything is decided; the parent only executes."""

    attempt: int
    job: int
    number: int
    argv: tuple[str, ...]
    shell: bool  # argv is one text for the context's shell
    context: int
    env: dict[str, str]  # on top of the context's environment
    devices: tuple[int, ...]
    stdout: str | None  # None: inherit (attached jobs that stream)
    stderr: str | None  # None: where stdout goes; INHERIT: ours
    own_log: bool  # stdout is ours: private, capped
    time_limit: float | None
    grace: float
    keep_children: bool
    warn: str | None = None  # signal before the time limit, USR1@60
    folder: str | None = None  # to be made for it


class AttemptStarted(Record):
    """The attempt's first process exists."""

    attempt: int
    pid: int
    at: float
    mono: float
    pid_started: int = 0  # clock ticks since boot (process_table.py); 0: not known


class Refused(Record):
    """The host could not start it (no processes, descriptors or disk left); nothing ran."""

    attempt: int
    why: str


class Stuck(Record):
    """A process of the attempt survives SIGKILL, so the attempt cannot end."""

    attempt: int
    pid: int
    why: str


RunnerEvent = AttemptStarted | Outcome | Refused | Stuck
