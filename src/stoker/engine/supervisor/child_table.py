"""The children of a parent of jobs: attempts, helper processes, and what attempts left behind."""

from __future__ import annotations

import os
from collections.abc import Iterable

from stoker.engine.supervisor import job_processes
from stoker.engine.supervisor.job_cgroups import JobCgroups
from stoker.engine.supervisor.job_processes import Leader
from stoker.engine.supervisor.process_table import Process
from stoker.engine.supervisor.running_attempt import RunningAttempt


class ChildTable:
    """`has_only_jobs`: every child that is not known here is an orphan of an attempt."""

    def __init__(self, tag_base: int, cgroups: JobCgroups, has_only_jobs: bool) -> None:
        self.tag_base = tag_base
        self._cgroups = cgroups
        self._has_only_jobs = has_only_jobs
        self.by_pid: dict[int, RunningAttempt] = {}  # whose first process was not reaped
        self.by_attempt: dict[int, RunningAttempt] = {}  # that have not ended
        self.ending: list[RunningAttempt] = []  # first process exited, leftovers possible
        self.helper_pids: set[int] = set()  # children that are not jobs
        self.kept_until = 0  # strays that started earlier may belong to a job with keep_children
        self._list = _open_children_list()

    def has_unknown(self) -> bool:
        """Whether there are children that are neither first processes nor helpers.

        We are a subreaper, so every leftover has an ancestor among our children. The kernel's list
        of our children therefore shows cheaply that there are no leftovers, the usual case.
        """
        if self._list is None:
            return True
        known = len(self.by_pid) + len(self.helper_pids)
        # Known children leave the list only when we reap them, so equal counts mean equal sets. (A
        # PID and a space have at most eight bytes; a list that is cut here has unknown children.)
        return os.pread(self._list, 8 * known + 8, 0).count(b" ") != known

    def processes(self, attempts: Iterable[RunningAttempt]) -> list[Process]:
        """The processes of these attempts, from one pass over the process table."""
        found = self.processes_by_attempt()
        return [one for attempt in attempts for one in found.get(attempt.order.attempt, ())]

    def processes_by_attempt(self) -> dict[int, list[Process]]:
        leaders = {attempt.pid: Leader(attempt.order.attempt) for attempt in self.ending}
        for pid, attempt in self.by_pid.items():
            leaders[pid] = Leader(attempt.order.attempt)
        return job_processes.processes_by_attempt(
            self.tag_base,
            leaders,
            os.getpid(),
            cgroups=self._cgroups.attempts_by_pid(),
            owner_of_stray=self._owner_of_stray,
        )

    def _owner_of_stray(self, process: Process) -> int | None:
        """The attempt of an orphan that has lost its tag, session, ancestors and environment.

        It writes to the attempt's log, or no other attempt can have started it.
        """
        if process.pid in self.helper_pids:
            return None
        attempts = [one for one in self.by_attempt.values() if one.began <= process.started]
        for attempt in attempts:
            path = attempt.order.stdout
            if path is not None and attempt.order.own_log and _writes_to(process.pid, path):
                return attempt.order.attempt
        if not self._has_only_jobs or process.started <= self.kept_until:
            return None
        if any(attempt.order.settings.keep_children for attempt in attempts):
            return None
        running = [attempt for attempt in attempts if attempt.outcome is None]
        if len(running) > 1 or (running and len(attempts) > 1):
            return None  # it is killed with the last of them
        return attempts[-1].order.attempt if attempts else None


def _open_children_list() -> int | None:
    """The kernel's list of our children; None on kernels without one."""
    try:
        return os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _writes_to(pid: int, path: str) -> bool:
    """Whether stdout or stderr of a process is a file."""
    for number in (1, 2):
        try:
            if os.path.samefile(f"/proc/{pid}/fd/{number}", path):
                return True
        except OSError:
            continue  # closed, or not permitted
    return False
