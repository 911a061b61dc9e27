"""Attempts whose runner died: the daemon supervises them.

There are three ways to get their exit codes: wait for them, if the daemon became their parent (it
had started the runner); read the process table, until init has reaped them; or query a pidfd, which
since Linux 6.15 returns the exit status of any process. The daemon therefore keeps a pidfd of each
job that runs for more than a moment (`ProcessHandles`). If all of them fail, the job is `lost`.

CPU time and peak memory come from the wait, otherwise from samples of /proc. A sample contains
everything since the start of a process, so the last one before its exit lacks little.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import time
from collections.abc import Iterable

from stoker.engine.model import Outcome
from stoker.engine.supervisor import job_processes, kill_processes, process_tags
from stoker.engine.supervisor.job_cgroups import JobCgroups
from stoker.engine.supervisor.job_processes import Leader
from stoker.engine.supervisor.kill_processes import KillRetries
from stoker.engine.supervisor.messages import AttemptStarted, Refused, RunnerEvent, Stuck
from stoker.engine.supervisor.oom_kills import OomKills
from stoker.engine.supervisor.process_table import (
    Process,
    monotonic_start,
    read_process,
    read_processes,
    zombie_status,
)
from stoker.engine.supervisor.start_hooks import container_of
from stoker.record import Record

_PIDFD_GET_INFO = 0xC0000000 | 64 << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 1 << 3
_TICK = os.sysconf("SC_CLK_TCK")
_POLL_SECONDS = 0.2
_SAMPLE_SECONDS = 1.0  # of CPU time and memory
# How long init may take to reap an orphan before its exit code counts as lost.
_STATUS_SECONDS = 5.0
_LEFTOVER_GRACE_SECONDS = 2.0
_MAX_HANDLES = 1000
# How a process ends that was forked for a job and has executed nothing of it (forked_job.py).
_ABANDONED_SIGNAL = 61


class UsedResources(Record):
    """What a process and its descendants used until now."""

    user_seconds: float = 0.0
    system_seconds: float = 0.0
    max_rss_bytes: int = 0

    def at_least(self, other: UsedResources) -> UsedResources:
        """The larger of each value: a sample misses processes that ended since the last one."""
        return UsedResources(
            user_seconds=max(self.user_seconds, other.user_seconds),
            system_seconds=max(self.system_seconds, other.system_seconds),
            max_rss_bytes=max(self.max_rss_bytes, other.max_rss_bytes),
        )


def read_used_resources(pid: int) -> UsedResources:
    """Sample a process and its descendants; zeros if it has exited."""
    user = system = 0.0
    peak = 0
    for one in (pid, *job_processes.descendants(pid)):
        try:
            with open(f"/proc/{one}/stat", "rb") as file:
                words = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # exited: its parent's totals contain it when it is reaped
        user += (int(words[11]) + int(words[13])) / _TICK  # its own, and of reaped children
        system += (int(words[12]) + int(words[14])) / _TICK
        peak = max(peak, _peak(one))
    return UsedResources(user, system, peak)


def _peak(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            line = next((line for line in file if line.startswith(b"VmHWM:")), b"VmHWM: 0 kB")
        return int(line.split()[1]) * 1024
    except OSError:
        return 0


class ProcessHandles:
    """Pidfds of the first processes of running attempts."""

    def __init__(self) -> None:
        self._by_attempt: dict[int, tuple[int, int, int]] = {}  # pidfd, PID, start time

    def open(self, started: AttemptStarted) -> None:
        """Open a pidfd of an attempt's first process, unless its PID was reused."""
        if not started.pid_started or started.attempt in self._by_attempt:
            return
        if len(self._by_attempt) >= _MAX_HANDLES:
            return
        handle = _open_handle(started.pid, started.pid_started)
        if handle is not None:
            self._by_attempt[started.attempt] = (handle, started.pid, started.pid_started)

    def close(self, attempt: int) -> None:
        known = self._by_attempt.pop(attempt, None)
        if known is not None:
            os.close(known[0])

    def take(self, attempt: int) -> tuple[int, int, int] | None:
        """(pidfd, PID, start time) of an attempt; the caller has to close the pidfd."""
        return self._by_attempt.pop(attempt, None)


class Adoption(Record):
    """What is known about an attempt whose runner died."""

    attempt: int
    pid: int | None
    pid_started: int | None
    ends_by: float | None = None  # its time limit (monotonic)
    grace: float = 10.0
    exited: Outcome | None = None  # how its first process exited, if known
    activation: tuple[str, ...] = ()  # of its job, if it may have a container


class _Orphan:
    __slots__ = (
        "container", "ended_at", "ends_by", "grace", "handle", "kill_at", "kills", "leader", "pid",
        "reason", "resume_at", "status", "status_by", "used",
    )  # fmt: skip

    def __init__(self, adoption: Adoption, tag_base: int) -> None:
        self.pid = adoption.pid
        self.leader: Leader | None = None
        if adoption.pid is not None and adoption.pid_started is not None:
            self.leader = Leader(adoption.attempt, adoption.pid_started)
        self.ends_by = adoption.ends_by
        self.grace = adoption.grace
        self.handle: int | None = None
        self.kill_at: float | None = None
        self.resume_at: float | None = None  # when its processes continue at the latest
        self.kills = KillRetries()
        self.reason: str | None = None
        self.status: int | None = None
        self.status_by: float | None = None  # until when its exit status is waited for
        self.ended_at: float | None = None
        self.used = UsedResources()
        tag = process_tags.tag_of(tag_base, adoption.attempt)
        self.container = container_of(adoption.activation, dict(os.environb), tag)
        if adoption.exited is not None:
            exited = adoption.exited
            self.used = UsedResources(
                exited.user_seconds, exited.system_seconds, exited.max_rss_bytes
            )
            self.status = adoption.exited.status
            self.ended_at = adoption.exited.ended_at
            self.reason = adoption.exited.reason
            self.kill_at = time.monotonic() + _LEFTOVER_GRACE_SECONDS


class Orphans:
    def __init__(self, folder: str, tag_base: int, handles: ProcessHandles) -> None:
        self._folder = folder
        self._tag_base = tag_base
        self._handles = handles
        self._by_attempt: dict[int, _Orphan] = {}
        self._sample_at = 0.0
        self._oom_kills = OomKills()

    def __len__(self) -> int:
        return len(self._by_attempt)

    def __contains__(self, attempt: int) -> bool:
        return attempt in self._by_attempt

    def adopt(self, adoptions: Iterable[Adoption]) -> set[int]:
        """Supervise the attempts that have a running process, or whose exit code can still be read.

        Returns these attempts. Their time limits are enforced here from now on.
        """
        adopted = set()
        table = read_processes()
        by_tag = job_processes.first_processes(self._tag_base, table)
        candidates = {one.attempt: _Orphan(one, self._tag_base) for one in adoptions}
        found = self._processes(candidates.values(), table)
        for attempt, orphan in candidates.items():
            processes = found.get(attempt, [])
            if orphan.ended_at is None:
                self._open_handle(attempt, orphan, by_tag.get(attempt))
            # A container may be left although all processes of the job were killed.
            if orphan.handle is None and not processes and orphan.container is None:
                continue
            self._by_attempt[attempt] = orphan
            adopted.add(attempt)
            if orphan.ended_at is not None:
                kill_processes.terminate(processes)
            else:
                # The dead runner may have paused it, and no other process would continue it.
                kill_processes.resume(processes)
        self._sample(time.monotonic())
        return adopted

    def _sample(self, now: float) -> None:
        """Read what running attempts have used until now."""
        self._sample_at = now + _SAMPLE_SECONDS
        self._oom_kills.sample()
        for orphan in self._by_attempt.values():
            if orphan.handle is not None and orphan.pid is not None and orphan.ended_at is None:
                orphan.used = orphan.used.at_least(read_used_resources(orphan.pid))

    def _open_handle(self, attempt: int, orphan: _Orphan, by_tag: Process | None) -> None:
        """Open a pidfd of the first process of an attempt, unless there is one."""
        kept = self._handles.take(attempt)
        if kept is not None:
            orphan.handle, orphan.pid, started = kept
            orphan.leader = Leader(attempt, started)
            return
        # The runner may have died before it reported the PID.
        if orphan.leader is None and by_tag is not None:
            orphan.pid, orphan.leader = by_tag.pid, Leader(attempt, by_tag.started)
        if orphan.pid is not None and orphan.leader is not None:
            orphan.handle = _open_handle(orphan.pid, orphan.leader.started or 0)

    def _processes(
        self, orphans: Iterable[_Orphan], table: dict[int, Process] | None = None
    ) -> dict[int, list[Process]]:
        leaders = {
            one.pid: one.leader for one in orphans if one.pid is not None and one.leader is not None
        }
        cgroups = JobCgroups.load(self._folder).attempts_by_pid()
        return job_processes.processes_by_attempt(
            self._tag_base, leaders, table=table, cgroups=cgroups
        )

    def handles(self) -> list[int]:
        """Pidfds, which become readable when a process exits."""
        waiting = (o for o in self._by_attempt.values() if o.ended_at is None)
        return [o.handle for o in waiting if o.handle is not None]

    def stop(self, attempt: int, reason: str, grace: float | None) -> None:
        """Send SIGTERM, and SIGKILL after the grace period. A second call may shorten it.

        `grace` None is the grace period of the job.
        """
        orphan = self._by_attempt[attempt]
        kill_at = time.monotonic() + (orphan.grace if grace is None else grace)
        if orphan.reason is None:
            orphan.reason = reason
        if orphan.kill_at is None:
            processes = self._processes(self._by_attempt.values()).get(attempt, [])
            if orphan.container is not None and orphan.handle is not None:
                # The process of the engine passes the signal on to the container.
                processes = [process for process in processes if process.pid == orphan.pid]
            kill_processes.terminate(processes)
        orphan.kill_at = kill_at if orphan.kill_at is None else min(kill_at, orphan.kill_at)
        orphan.ends_by = orphan.resume_at = None

    def pause(self, attempt: int, seconds: float) -> None:
        """Stop all processes of an attempt, for `seconds` at most, unless it is being stopped."""
        orphan = self._by_attempt[attempt]
        if orphan.kill_at is None and orphan.ended_at is None:
            orphan.resume_at = time.monotonic() + seconds
            kill_processes.pause(lambda: self._processes_of(attempt))

    def resume(self, attempt: int) -> None:
        """Continue the processes of an attempt; does nothing if they are not paused."""
        orphan = self._by_attempt[attempt]
        if orphan.resume_at is not None:
            orphan.resume_at = None
            kill_processes.resume(self._processes_of(attempt))

    def _processes_of(self, attempt: int) -> list[Process]:
        return self._processes(self._by_attempt.values()).get(attempt, [])

    def next_deadline(self) -> float | None:
        orphans = self._by_attempt.values()
        times = [
            at for o in orphans for at in (o.kill_at, o.ends_by, o.resume_at) if at is not None
        ]
        if any(o.handle is None or o.ended_at for o in self._by_attempt.values()):
            # No pidfd to wait for: the first process has exited, the others are not our children.
            times.append(time.monotonic() + _POLL_SECONDS)
        if self._by_attempt:
            times.append(self._sample_at)
        return min(times, default=None)

    def reap(self) -> list[RunnerEvent]:
        """The attempts that have ended, and those that cannot be killed."""
        now = time.monotonic()
        for attempt, orphan in self._by_attempt.items():
            if orphan.ends_by is not None and now >= orphan.ends_by:
                self.stop(attempt, "time_limit", orphan.grace)
            if orphan.resume_at is not None and now >= orphan.resume_at:
                self.resume(attempt)
        to_kill = [a for a, o in self._by_attempt.items() if o.kill_at and now >= o.kill_at]
        if now >= self._sample_at:
            self._sample(now)
        events: list[RunnerEvent] = [*self._kill(to_kill, now)] if to_kill else []
        for orphan in self._by_attempt.values():
            if orphan.handle is not None:
                self._read_status(orphan)
        if all(orphan.handle is not None for orphan in self._by_attempt.values()):
            return events
        return [*events, *self._finish(self._processes(self._by_attempt.values()))]

    def _kill(self, attempts: list[int], now: float) -> list[Stuck]:
        """Kill attempts whose grace period is over; returns those that cannot be killed."""
        pauses, stuck = kill_processes.kill_attempts(
            self._tag_base,
            {attempt: self._by_attempt[attempt].kills for attempt in attempts},
            lambda: self._processes(self._by_attempt.values()),
            JobCgroups.load(self._folder),
        )
        for attempt, pause in pauses.items():
            self._by_attempt[attempt].kill_at = now + pause
        return stuck

    def _finish(self, alive: dict[int, list[Process]]) -> list[Outcome | Refused]:
        over: list[Outcome | Refused] = []
        for attempt, orphan in list(self._by_attempt.items()):
            if orphan.handle is not None:
                continue
            processes = alive.get(attempt)
            container = None if orphan.status == 0 else orphan.container
            if container is not None and not container.wait_for_removal(time.monotonic()):
                continue
            if not processes:
                del self._by_attempt[attempt]
                cgroups = JobCgroups.load(self._folder)
                end = self._outcome(attempt, orphan)
                if isinstance(end, Outcome):
                    end = cgroups.with_cause(end)
                    since = 0.0 if orphan.leader is None else monotonic_start(orphan.leader.started)
                    end = self._oom_kills.with_cause(end, orphan.pid or 0, since)
                over.append(end)
                cgroups.remove(attempt)
            elif orphan.kill_at is None:
                kill_processes.terminate(processes)
                orphan.kill_at = time.monotonic() + _LEFTOVER_GRACE_SECONDS
        return over

    def _read_status(self, orphan: _Orphan) -> None:
        """Read the status of a first process that has exited, and close its pidfd."""
        assert orphan.handle is not None
        if not _has_exited(orphan.handle):
            return
        orphan.ended_at = orphan.ended_at or time.time()
        orphan.status_by = orphan.status_by or time.monotonic() + _STATUS_SECONDS
        waited = _wait_for_child(orphan.handle)
        if waited is not None:
            orphan.status, used = waited
            orphan.used = orphan.used.at_least(used)
        else:
            orphan.status = exit_status(orphan.handle)
        if orphan.status is None and orphan.leader is not None and orphan.pid is not None:
            orphan.status = zombie_status(orphan.pid, orphan.leader.started or 0)
        if orphan.status is None and time.monotonic() < orphan.status_by:
            return  # its new parent has not reaped it yet; the pidfd has the status only after that
        os.close(orphan.handle)
        orphan.handle = None

    def _outcome(self, attempt: int, orphan: _Orphan) -> Outcome | Refused:
        reason = orphan.reason
        if orphan.status == _ABANDONED_SIGNAL and reason is None:
            return Refused(attempt, "the runner died before it started the job")
        if orphan.status is None and reason is None:
            reason = "lost"
        return Outcome(
            attempt=attempt,
            status=orphan.status,
            ended_at=orphan.ended_at or time.time(),
            reason=reason,
            user_seconds=orphan.used.user_seconds,
            system_seconds=orphan.used.system_seconds,
            max_rss_bytes=orphan.used.max_rss_bytes,
        )


def _open_handle(pid: int, started: int) -> int | None:
    """A pidfd of exactly this process; None if it has exited."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None
    process = read_process(pid)
    if process is not None and process.started == started:
        return handle
    os.close(handle)
    return None


def _has_exited(handle: int) -> bool:
    """Whether a process has exited, reaped or not."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(0))


def _wait_for_child(handle: int) -> tuple[int, UsedResources] | None:
    """Wait status and use of an exited process if it is our child; None otherwise."""
    try:
        info = os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if info is None:
            return None
        _, status, usage = os.wait4(info.si_pid, os.WNOHANG)
    except ChildProcessError:
        return None
    # Before it executed its program, it was a copy of the runner, and the kernel counts that too.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = usage.ru_maxrss * 1024 if usage.ru_maxrss > own else 0
    return status, UsedResources(usage.ru_utime, usage.ru_stime, peak)


def exit_status(handle: int) -> int | None:
    """The wait status of an exited process that is not our child; None if not available."""
    buffer = bytearray(64)  # struct pidfd_info: the request mask first, the exit code last
    buffer[:8] = _PIDFD_INFO_EXIT.to_bytes(8, "little")
    try:
        fcntl.ioctl(handle, _PIDFD_GET_INFO, buffer)
    except OSError:
        return None  # an older kernel
    if not int.from_bytes(buffer[:8], "little") & _PIDFD_INFO_EXIT:
        return None  # not reaped yet
    return int.from_bytes(buffer[60:64], "little", signed=True)
