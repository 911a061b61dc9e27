"""Messages between the loop and the parent of the jobs (runner or foreground run).

On the socket between daemon and runner, and in the journal, a message has a kind. They never
change, because daemon and runner may be of different releases:

kind      direction         record or meaning
--------  ----------------  -----------------------------------------------------------------
hello     both              the protocol version (wire.py)
context   daemon -> runner  Context, before the first order that uses it
launch    daemon -> runner  Order
stop      daemon -> runner  stop an attempt
pause     daemon -> runner  stop its processes with SIGSTOP, for some seconds at most
resume    daemon -> runner  continue them
list      daemon -> runner  request `living`
bye       daemon -> runner  the daemon exits on purpose: do not restart it
begun     runner -> daemon  AttemptStarted (in the journal: JournalBegun, before the spawn)
ended     runner -> daemon  Outcome (also in the journal)
refused   runner -> daemon  Refused (in the journal: `undone`)
stuck     runner -> daemon  Stuck
rolled    runner -> daemon  the journal has a new segment
living    runner -> daemon  AttemptStarted of every attempt that has not ended
problem   runner -> daemon  a problem of the runner; empty when it is over
"""

from __future__ import annotations

from stoker.engine.job_settings import DEFAULT_SETTINGS, JobSettings
from stoker.engine.model import Outcome
from stoker.record import Record

PREEMPTED = "preempted"  # the reason to stop an attempt that gives way to another job
INHERIT = "-"  # for stderr: inherit the parent's, although stdout is a file


class Order(Record):
    """Start this attempt."""

    attempt: int
    job: int
    number: int
    argv: tuple[str, ...]
    shell: bool  # argv is one string for the context's shell
    context: int
    env: dict[str, str]  # added to the context's environment
    devices: tuple[int, ...]
    stdout: str | None  # None: inherit (foreground jobs)
    stderr: str | None  # None: same as stdout
    own_log: bool  # stdout is Stoker's log: private, with a size limit
    time_limit: float | None
    grace: float  # that of its settings, or the default
    settings: JobSettings = DEFAULT_SETTINGS
    folder: str | None = None  # to create before the start
    cpus: str = ""  # to bind it to, as 0-15,32-47; empty: all that its parent may use
    modules: str = ""  # for a warm start: the learned ones
    measures_memory: bool = False  # of all its processes, while it runs
    memory_limit: int | None = None  # bytes; more kills it, where cgroups allow that
    cpu_limit: int = 0  # cores; 0: none
    code_check: str = ""  # a file with the recorded code, which is compared before the start
    code_note: str = ""  # what is known about changes of the code; the first line of the log
    cgroup: str = ""  # the parent cgroup for its limits; empty: that of the parent


class AttemptStarted(Record):
    """The attempt's first process exists."""

    attempt: int
    pid: int
    at: float
    mono: float
    pid_started: int = 0  # clock ticks since boot (process_table.py); 0: not known
    note: str | None = None  # why a warm start became a cold one
    python: str = ""  # version of the Python that it runs; "": not known
    code_note: str = ""  # how its code has changed since its submit


class Refused(Record):
    """The host could not start it (no processes, descriptors or disk space left)."""

    attempt: int
    why: str


class Stuck(Record):
    """A process of the attempt survives SIGKILL, so the attempt cannot end."""

    attempt: int
    pid: int
    why: str


RunnerEvent = AttemptStarted | Outcome | Refused | Stuck
