"""Ends all processes of an attempt: SIGTERM, later SIGSTOP and SIGKILL until none is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from stoker.engine.supervisor.job_cgroups import JobCgroups
from stoker.engine.supervisor.job_processes import all_processes, children, processes_by_attempt
from stoker.engine.supervisor.messages import Stuck
from stoker.engine.supervisor.process_table import Process, name_of, read_process
from stoker.engine.supervisor.process_tags import DETACHED, attempt_of, base_of, read_tag

_TIMEOUT_SECONDS = 0.5  # of one `kill`
_PASSES_OVER_CHILDREN = 10
_RETRY_SECONDS = 0.1
_MAX_RETRY_SECONDS = 60.0


def send(process: Process, number: int) -> bool:
    """Signal exactly this process; False if that is not permitted (another user's process)."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return True  # it has exited
    try:
        # The PID may have been reused between reading the table and the open.
        now = read_process(process.pid)
        if now is not None and now.started == process.started:
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    finally:
        os.close(handle)
    return True


def terminate(processes: Iterable[Process]) -> None:
    """Send SIGTERM, then SIGCONT, because a stopped process does not handle SIGTERM."""
    for process in processes:
        send(process, signal.SIGTERM)
        send(process, signal.SIGCONT)


def pause(find: Callable[[], list[Process]]) -> None:
    """Send SIGSTOP to all processes that `find` returns, until it finds no new ones."""
    seen: set[tuple[int, int]] = set()
    for _ in range(_PASSES_OVER_CHILDREN):
        new = [one for one in find() if (one.pid, one.started) not in seen]
        if not new:
            return
        for process in new:  # a process that is not stopped yet may start another
            send(process, signal.SIGSTOP)
            seen.add((process.pid, process.started))


def resume(processes: Iterable[Process]) -> None:
    """Continue processes that `pause` stopped."""
    for process in processes:
        send(process, signal.SIGCONT)


def kill(
    base: int,
    attempts: Collection[int] | None,
    find: Callable[[], list[Process]],
    timeout: float = _TIMEOUT_SECONDS,
) -> list[Process]:
    """Stop, then kill, until two passes in a row find nothing; returns the survivors.

    SIGSTOP comes first so that a process cannot escape by forking faster than we scan. `attempts`
    of the store (None: all) are those whose processes `find` returns.
    """
    deadline = time.monotonic() + timeout
    empty = 0
    while empty < 2:
        _stop_tagged(base, attempts)
        found = find()
        empty = 0 if found else empty + 1
        for process in found:
            send(process, signal.SIGSTOP)
        for process in found:
            send(process, signal.SIGKILL)
        if found and time.monotonic() > deadline:
            return found
    return []


class KillRetries:
    """When to send SIGKILL again to the remaining processes of an attempt.

    Processes that hang in the kernel or belong to another user are retried with a backoff. If each
    pass finds new processes, the attempt forks faster than they are killed, and the next pass
    follows soon.
    """

    __slots__ = ("_survivors", "failures")

    def __init__(self) -> None:
        self.failures = 0  # passes in a row that the same process survived
        self._survivors: frozenset[tuple[int, int]] = frozenset()

    def pause(self, left: list[Process]) -> float:
        """Seconds until the next pass after one that left these processes alive."""
        survivors = frozenset((process.pid, process.started) for process in left)
        is_stuck = not survivors.isdisjoint(self._survivors)
        self._survivors = survivors
        self.failures = self.failures + 1 if is_stuck else 0
        if is_stuck:
            return float(min(2.0**self.failures, _MAX_RETRY_SECONDS))
        return _RETRY_SECONDS if left else 1.0


def kill_attempts(
    base: int,
    retries: Mapping[int, KillRetries],
    find: Callable[[], dict[int, list[Process]]],
    cgroups: JobCgroups,
) -> tuple[dict[int, float], list[Stuck]]:
    """Kill the attempts whose retries are given. In a cgroup, they cannot start processes then.

    Returns the seconds until each is due again, and those that turned out to be unkillable now.
    """

    def find_these() -> list[Process]:
        found = find()
        return [process for attempt in retries for process in found.get(attempt, ())]

    timeout = 0.0 if all(one.failures for one in retries.values()) else _TIMEOUT_SECONDS
    cgroups.freeze(retries)
    try:
        left = find() if kill(base, retries, find_these, timeout) else {}
    finally:
        cgroups.freeze(retries, is_over=True)
    pauses, stuck = {}, []
    for attempt, one in retries.items():
        processes = left.get(attempt, [])
        pauses[attempt] = one.pause(processes)
        if one.failures == 1:
            stuck.append(Stuck(attempt, processes[0].pid, why_alive(processes)))
    return pauses, stuck


def why_alive(processes: list[Process]) -> str:
    """Why SIGKILL did not end these processes."""
    process = processes[0]
    what = f"process {process.pid} ({name_of(process.pid)})"
    if not send(process, 0):
        return f"{what} belongs to another user and cannot be killed"
    return f"{what} does not end after SIGKILL (state {process.state})"


def kill_attempt(base: int, attempt: int) -> list[Process]:
    """End every process of one attempt; returns the survivors."""
    return kill(base, [attempt], lambda: processes_by_attempt(base).get(attempt, []))


def kill_all(base: int, timeout: float = _TIMEOUT_SECONDS) -> list[Process]:
    """End every process of every attempt of a queue; returns the survivors."""
    return kill(base, None, lambda: all_processes(base), timeout)


def _stop_tagged(base: int, attempts: Collection[int] | None) -> None:
    """Send SIGSTOP to each tagged process as soon as it is found.

    A process that replaces itself by a new one every few milliseconds becomes a child of the
    subreaper each time, so our own children are scanned first, from the kernel's list.
    """
    me = os.getpid()
    for _ in range(_PASSES_OVER_CHILDREN):
        for pid in children(me):
            _stop_if_tagged(pid, base, attempts)
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != me:
            _stop_if_tagged(int(entry), base, attempts)


def _stop_if_tagged(pid: int, base: int, attempts: Collection[int] | None) -> None:
    tag = read_tag(pid)
    if tag is None or tag == DETACHED or base_of(tag) != base:
        return
    if attempts is not None and attempt_of(tag) not in attempts:
        return
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if read_tag(pid) == tag:  # the PID may have been reused before the open
            signal.pidfd_send_signal(handle, signal.SIGSTOP)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(handle)
