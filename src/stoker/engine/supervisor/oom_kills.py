"""Whether the kernel's OOM killer ended a job.

The counter of OOM kills is that of the whole host, so it only shows that a job was *not* killed.
The kernel's log, which root can read, has the process; other users get a hint, not a cause.
"""

from __future__ import annotations

import os
import re
import signal

from stoker.engine.model import Outcome

CAUSE = "host_oom"
_HINT = "the kernel killed a process of this host for lack of memory, perhaps one of this job"
_KILLED = (signal.SIGKILL, (128 + signal.SIGKILL) << 8)  # the latter: of a shell or a container
_KERNEL_LOG = "/dev/kmsg"
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # the kernel's log has the PIDs of this one
# PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT. A priority below 8 is of the kernel itself.
_RECORD = re.compile(rb"[0-7],\d+,(\d+),[^;]*;.*[Oo]ut of memory.*: Killed process (\d+) ")
_SLACK_SECONDS = 60.0  # the clock of the kernel's log drifts


class OomKills:
    """Compares the counter of OOM kills with its value some seconds ago."""

    def __init__(self) -> None:
        self._counts = (count_oom_kills(),) * 2  # older, newer: a killed process may exit slowly

    def sample(self) -> None:
        """To be called every few seconds."""
        self._counts = self._counts[1], count_oom_kills()

    def with_cause(self, outcome: Outcome, pid: int, since: float) -> Outcome:
        """The outcome of a first process that started at `since` (monotonic), with its cause."""
        if outcome.status not in _KILLED or outcome.reason is not None:
            return outcome
        return outcome if count_oom_kills() <= self._counts[0] else with_cause(outcome, pid, since)


def with_cause(outcome: Outcome, pid: int, since: float) -> Outcome:
    """The same if a process of this host was killed, perhaps another one."""
    killed = read_killed(since)
    if killed is None or outcome.status != signal.SIGKILL:
        return outcome._replace(detail=_HINT)
    if pid not in killed:
        return outcome
    return outcome._replace(
        reason=CAUSE, detail="killed by the kernel because the host ran out of memory"
    )


def read_killed(since: float) -> set[int] | None:
    """The PIDs that the OOM killer ended since then; None if the kernel's log cannot be read."""
    try:
        if os.stat("/proc/self/ns/pid").st_ino != _FIRST_PID_NAMESPACE:
            return None
        descriptor = os.open(_KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    records = []
    try:
        while True:
            try:
                records.append(os.read(descriptor, 8192))
            except BrokenPipeError:
                continue  # the kernel overwrote records before we read them
    except OSError:
        pass  # no more records
    finally:
        os.close(descriptor)
    return killed_processes(records, since)


def killed_processes(records: list[bytes], since: float) -> set[int]:
    """
    >>> killed_processes([b"3,88,4000000,-;Out of memory: Killed process 71 (python)"], 3.5)
    {71}
    >>> killed_processes([b"11,88,4000000,-;Out of memory: Killed process 71 (by a user)"], 3.5)
    set()
    """
    found = (match for record in records if (match := _RECORD.match(record)))
    return {int(match[2]) for match in found if int(match[1]) / 1e6 >= since - _SLACK_SECONDS}


def count_oom_kills() -> int:
    """How many processes the OOM killer has ended since boot."""
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0
