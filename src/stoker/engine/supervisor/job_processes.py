"""Finds the processes of each attempt.

No single method finds every process, so all are combined. A process belongs to an attempt if it, or
its nearest ancestor for which one of these rules decides,

    has the attempt's tag (process_tags.py), or
    is the attempt's first process, known by PID and start time, or
    is in the session that the first process leads, or
    is in the attempt's cgroup, where available (job_cgroups.py), or
    is orphaned and was started with the attempt's tag in its environment; so is the first process
    of a container, whose parent belongs to the container engine; or
    is orphaned and is the attempt's according to the parent of jobs (`owner_of_stray`).

Daemons and runners detach themselves and belong to no attempt. A job inside a job (`stoker run` in
a submitted script) belongs to both: to the inner one by its tag, to the outer one by its ancestors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from stoker.engine.supervisor.process_table import (
    Process,
    is_running,
    name_of,
    read_process,
    read_processes,
)
from stoker.engine.supervisor.process_tags import (
    DETACHED,
    attempt_of,
    base_of,
    read_tag,
    tags_in_environment,
)
from stoker.record import Record


class Leader(Record):
    """The first process of an attempt, which leads the session of the same number."""

    attempt: int
    started: int | None = None  # None: our own child, not reaped yet, so the PID cannot be reused


_NONE: Mapping[int, Leader] = {}
# The parents of containers of docker and podman; the kernel cuts names to 15 bytes.
_CONTAINER_PARENTS = ("containerd-shim", "conmon")


def processes_by_attempt(
    base: int,
    leaders: Mapping[int, Leader] = _NONE,
    root: int | None = None,
    table: dict[int, Process] | None = None,
    cgroups: Mapping[int, int] = {},
    owner_of_stray: Callable[[Process], int | None] = lambda _: None,
) -> dict[int, list[Process]]:
    """The running processes of each attempt of a queue, from one pass over the process table.

    `root`: the subreaper that is the ancestor of all of them; other processes are not considered.
    None if it may be dead. `cgroups`: attempts by PID. `owner_of_stray`: the attempt of an orphan
    without a tag and other evidence.
    """
    if table is None:
        table = read_processes()
    search = _Search(base, leaders, root, table, cgroups, owner_of_stray)
    found: dict[int, list[Process]] = {}
    for process in search.table.values():
        if process.pid == search.me or not is_running(process):
            continue
        attempt = search.owner(process)
        if attempt is not None:
            found.setdefault(attempt, []).append(process)
    return found


def first_processes(base: int, table: dict[int, Process]) -> dict[int, Process]:
    """The session leader of each attempt by its tag, including zombies."""
    found = {}
    for process in table.values():
        tag = read_tag(process.pid) if process.session == process.pid else None
        if tag is not None and tag != DETACHED and base_of(tag) == base:
            found[attempt_of(tag)] = process
    return found


def owner_of(pid: int, base: int, leaders: Mapping[int, Leader] = _NONE) -> int | None:
    """The attempt of one process, without a pass over the process table."""
    table: dict[int, Process] = {}
    at = pid
    while at > 1 and at not in table:
        process = read_process(at)
        if process is None:
            break
        table[at] = process
        at = process.parent
    return _Search(base, leaders, None, table, {}).owner(table[pid]) if pid in table else None


class _Search:
    def __init__(
        self,
        base: int,
        leaders: Mapping[int, Leader],
        root: int | None,
        table: dict[int, Process],
        cgroups: Mapping[int, int],
        owner_of_stray: Callable[[Process], int | None] = lambda _: None,
    ) -> None:
        self.table = table
        self._owner_of_stray = owner_of_stray
        self._cgroups = cgroups
        self.me = os.getpid()
        self._base = base
        self._leaders = leaders
        self._root = root
        self._known: dict[int, int | None] = {}

    def owner(self, process: Process) -> int | None:
        """The attempt of a process; results for its ancestors are cached."""
        path = []
        at: Process | None = process
        attempt: int | None = None
        while at is not None:
            if at.pid in self._known:
                attempt = self._known[at.pid]
                break
            path.append(at.pid)
            self._known[at.pid] = None  # the table is not read atomically and may have loops
            is_decided, attempt = self._evidence(at)
            if is_decided:
                break
            at = self.table.get(at.parent)
        if at is None:
            attempt = None
        for pid in path:
            self._known[pid] = attempt
        return attempt

    def _evidence(self, process: Process) -> tuple[bool, int | None]:
        """(whether this process decides, its attempt)."""
        if process.pid == self._root:
            return True, None
        leader = self._leaders.get(process.pid)
        if leader is not None and leader.started in (None, process.started):
            return True, leader.attempt
        tag = read_tag(process.pid)
        if tag == DETACHED:
            return True, None
        if tag is not None and base_of(tag) == self._base:
            return True, attempt_of(tag)
        if tag is None and process.pid in self._cgroups:
            return True, self._cgroups[process.pid]
        leader = self._leaders.get(process.session)
        if leader is not None and self._is_session_of(leader, process):
            return True, leader.attempt
        if self._is_orphaned(process):
            attempt = self._attempt_in_environment(process)
            if attempt is None and tag is None:
                attempt = self._owner_of_stray(process)
            return True, attempt
        return False, None

    def _is_session_of(self, leader: Leader, process: Process) -> bool:
        first = self.table.get(process.session)
        if first is not None:
            return leader.started in (None, first.started)
        # The leader has exited. Its PID is not reused while its session exists, but that session
        # may have ended and the PID may lead another one, so the environment must agree.
        return self._attempt_in_environment(process) == leader.attempt

    def _is_orphaned(self, process: Process) -> bool:
        parent = process.parent
        if self._root is not None:
            return parent == self._root
        if parent <= 1 or parent == self.me or parent not in self.table:
            return True
        if read_tag(parent) == DETACHED:
            return True
        return name_of(parent) in ("systemd", *_CONTAINER_PARENTS)

    def _attempt_in_environment(self, process: Process) -> int | None:
        for tag in reversed(tags_in_environment(process.pid)):
            if base_of(tag) == self._base:
                return attempt_of(tag)
        return None


def children(pid: int) -> list[int]:
    """The direct children of a process; empty where the kernel does not list them."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """All descendants of a process; empty where the kernel does not list children."""
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def programs(pid: int, shell: str | None) -> list[int]:
    """The processes that should get a signal for a job: its shell's children, or the first.

    A shell often execs its last command, so the executable is checked, not the command line.
    """
    if shell is not None:
        try:
            is_shell = os.path.samefile(f"/proc/{pid}/exe", shell)
        except OSError:
            is_shell = False
        if is_shell:
            return children(pid) or [pid]
    return [pid]


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            mask = next(line for line in file if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(mask.split()[1], 16) >> (number - 1) & 1)


def all_processes(base: int, root: int | None = None) -> list[Process]:
    found = processes_by_attempt(base, root=root)
    return [process for processes in found.values() for process in processes]
