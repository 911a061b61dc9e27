"""The parent of running attempts: starts them, reaps them, and kills their process trees.

Time limits and grace periods are enforced here, in the parent process, so they hold while no daemon
is running. A process that outlives the first process of its attempt (a leftover) is killed too,
unless the job has `keep_children`; an attempt has ended when none of its processes is left.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable

from stoker.engine.model import Outcome
from stoker.engine.supervisor import kill_processes, limit_warning
from stoker.engine.supervisor.attempt_starts import AttemptStarts
from stoker.engine.supervisor.child_table import ChildTable
from stoker.engine.supervisor.empty_logs import EmptyLogs
from stoker.engine.supervisor.job_cgroups import JobCgroups
from stoker.engine.supervisor.job_python import python_of_process
from stoker.engine.supervisor.log_limits import LogLimits, note_leftovers
from stoker.engine.supervisor.memory_peaks import MemoryPeaks
from stoker.engine.supervisor.messages import PREEMPTED, AttemptStarted, Order, Stuck
from stoker.engine.supervisor.oom_kills import OomKills
from stoker.engine.supervisor.process_table import Process, name_of, read_process, ticks_since_boot
from stoker.engine.supervisor.running_attempt import RunningAttempt
from stoker.engine.supervisor.spawn import HostError, StartFailed, close_all
from stoker.testing.failpoints import failpoint
from stoker.text.limit_signal import seconds_to_save

# Leftovers get SIGTERM after this time: helpers such as those of multiprocessing exit before.
LEFTOVER_EXIT_SECONDS = 0.5
LEFTOVER_GRACE_SECONDS = 2.0
# Helpers of podman clean up after a container; they are not interrupted at once.
_CONTAINER_GRACE_SECONDS = 10.0
_NAMED = 3  # leftovers whose names are recorded
_SAMPLE_SECONDS = 2.0


class Children:
    """All attempts whose first process this process started.

    `record_exit` is called when a first process has exited and other processes of its attempt may
    be left. The other arguments are those of `AttemptStarts`, `ChildTable` and `LogLimits`.
    """

    def __init__(
        self,
        tag_base: int,
        log_limit: int,
        record_exit: Callable[[Outcome], None] | None = None,
        outer_tags: bytes = b"",
        cgroups: JobCgroups | None = None,
        record_begin: Callable[[Order], str | None] | None = None,
        has_only_jobs: bool = False,
        empty_logs: EmptyLogs | None = None,
    ) -> None:
        self._cgroups = JobCgroups([], base=tag_base) if cgroups is None else cgroups
        self._table = ChildTable(tag_base, self._cgroups, has_only_jobs)
        self._logs = LogLimits(log_limit, empty_logs)
        self.starts = AttemptStarts(
            self._table, self._cgroups, self._logs, record_begin, outer_tags
        )
        self._record_exit = record_exit
        self._to_terminate: list[RunningAttempt] = []  # to get SIGTERM after one pass over /proc
        self.stuck: list[Stuck] = []  # unkillable attempts, until the caller empties the list
        self._next_sample = 0.0
        self._memory_peaks = MemoryPeaks(tag_base)
        self._oom_kills = OomKills()

    def __len__(self) -> int:
        return len(self._table.by_attempt)

    def live_attempts(self) -> list[AttemptStarted]:
        """All attempts that have not ended."""
        return [
            self.with_start_time(
                AttemptStarted(attempt_id, attempt.pid, 0.0, attempt.mono, note=attempt.note)
            )
            for attempt_id, attempt in self._table.by_attempt.items()
        ]

    def with_start_time(self, started: AttemptStarted) -> AttemptStarted:
        """Add the start time of the process, which detects PID reuse, and its version of Python.

        A process that was reaped has neither.
        """
        attempt = self._table.by_pid.get(started.pid)
        if attempt is None or attempt.order.attempt != started.attempt:
            return started
        process = read_process(started.pid)
        if process is None:
            return started
        python = python_of_process(started.pid)
        return started._replace(pid_started=process.started, python=python)

    def pid_of(self, attempt_id: int) -> int | None:
        """The PID of the first process of a running attempt; None if it has ended."""
        attempt = self._table.by_attempt.get(attempt_id)
        return None if attempt is None else attempt.pid

    def ignore(self, pid: int) -> None:
        """Declare that a child of this process is not a job."""
        self._table.helper_pids.add(pid)

    def stop(self, attempt_id: int, reason: str, grace: float | None = None) -> None:
        """Send SIGTERM, and SIGKILL after the grace period. A second call may shorten it.

        A job with `--signal` that gives way to another job gets that signal instead of SIGTERM.
        """
        attempt = self._table.by_attempt.get(attempt_id)
        if attempt is None:
            return
        if attempt.reason is None:
            attempt.reason = reason
        warn = attempt.order.settings.signal if reason == PREEMPTED else None
        if grace is None:
            grace = seconds_to_save(attempt.grace, warn)
        kill_at = time.monotonic() + grace
        if attempt.kill_at is None and warn is not None:
            limit_warning.warn(attempt)
        elif attempt.kill_at is None:
            self._to_terminate.append(attempt)
            if attempt.cold_start is not None:
                self.starts.cancel(attempt)
        attempt.kill_at = kill_at if attempt.kill_at is None else min(kill_at, attempt.kill_at)
        attempt.deadline = attempt.warn_at = None
        attempt.resume_at = None  # `terminate` continues its processes

    def pause(self, attempt_id: int, seconds: float) -> None:
        """Stop all processes of an attempt, for `seconds` at most, unless it is being stopped."""
        attempt = self._table.by_attempt.get(attempt_id)
        if attempt is None or attempt.kill_at is not None or attempt.outcome is not None:
            return
        attempt.resume_at = time.monotonic() + seconds
        kill_processes.pause(lambda: self._table.processes([attempt]))
        self._pause_container(attempt, is_over=False)

    def resume(self, attempt_id: int) -> None:
        """Continue the processes of an attempt; does nothing if they are not paused."""
        attempt = self._table.by_attempt.get(attempt_id)
        if attempt is None or attempt.resume_at is None:
            return
        attempt.resume_at = None
        kill_processes.resume(self._table.processes([attempt]))
        self._pause_container(attempt, is_over=True)

    def _pause_container(self, attempt: RunningAttempt, *, is_over: bool) -> None:
        pid = None if attempt.container is None else attempt.container.pause(is_over=is_over)
        if pid is not None:
            self._table.helper_pids.add(pid)

    def _send_sigterm(self) -> None:
        """Send SIGTERM to all processes of the attempts stopped since the last call."""
        if self._to_terminate:
            kill_processes.terminate(self._to_signal(self._to_terminate))
            self._to_terminate = []
            failpoint("runner.after_sigterm")

    def _to_signal(self, attempts: list[RunningAttempt]) -> list[Process]:
        """The processes of these attempts; of a container, only the one that passes signals on."""
        contained = [attempt.pid for attempt in attempts if attempt.container is not None]
        found = self._table.processes(attempt for attempt in attempts if attempt.container is None)
        firsts = (read_process(pid) for pid in contained if pid in self._table.by_pid)
        return [*found, *(process for process in firsts if process is not None)]

    def _kill(self, attempts: list[RunningAttempt], now: float) -> None:
        """Kill attempts whose grace period is over; survivors are retried with a backoff."""
        retries = {attempt.order.attempt: attempt.kills for attempt in attempts}
        pauses, stuck = kill_processes.kill_attempts(
            self._table.tag_base, retries, self._table.processes_by_attempt, self._cgroups
        )
        for attempt in attempts:
            attempt.kill_at = now + pauses[attempt.order.attempt]
        self.stuck += stuck

    def next_deadline(self) -> float | None:
        """When to call `enforce_limits` next (monotonic)."""
        times = [self._logs.next_check] if self._table.by_attempt else []
        if self._to_terminate:
            times.append(0.0)
        for attempt in self._table.by_attempt.values():
            times += attempt.deadlines()
        warm = None if self.starts.warm is None else self.starts.warm.next_deadline()
        if warm is not None:
            times.append(warm)
        return min(times, default=None)

    def enforce_limits(self) -> list[Outcome]:
        """Enforce time limits, grace periods and the log size limit, then reap."""
        now = time.monotonic()
        to_kill = []
        for attempt_id, attempt in list(self._table.by_attempt.items()):
            if attempt.report is not None and now >= attempt.poll_at:
                self.starts.poll(attempt, now)
            if attempt.warn_at is not None and now >= attempt.warn_at:
                limit_warning.warn(attempt)
            if attempt.resume_at is not None and now >= attempt.resume_at:
                self.resume(attempt_id)
            if attempt.deadline is not None and now >= attempt.deadline:
                self.stop(attempt_id, "time_limit")
            if attempt.kill_at is not None and now >= attempt.kill_at:
                to_kill.append(attempt)
        self._send_sigterm()
        if to_kill:
            self._kill(to_kill, now)
        if now >= self._logs.next_check:
            self._logs.check(self._table.by_attempt.values(), now)
        if now >= self._next_sample:
            self._next_sample = now + _SAMPLE_SECONDS
            attempts = self._table.by_attempt.items()
            measured = [attempt_id for attempt_id, one in attempts if one.order.measures_memory]
            self._memory_peaks.sample(measured, now)
            self._oom_kills.sample()
        return self.reap()

    def reap(self) -> list[Outcome]:
        """Reap exited processes; returns the attempts that have ended."""
        self.starts.poll_warm()
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            attempt = self._table.by_pid.pop(pid, None)
            if attempt is not None:
                self._first_exited(attempt, status, usage)
                continue
            # An orphan of a job, or a helper process.
            self._table.helper_pids.discard(pid)
            for one in self._table.ending:
                if one.container is not None:
                    one.container.removed(pid)
        return self._finish_attempts() if self._table.ending else []

    def _first_exited(
        self, attempt: RunningAttempt, status: int, usage: resource.struct_rusage
    ) -> None:
        """The first process of an attempt was reaped; others may be left."""
        if attempt.report is not None:
            self.starts.poll(attempt, time.monotonic())
        order, warm = attempt.order, self.starts.warm
        attempt.outcome = Outcome(
            attempt=order.attempt,
            status=status,
            ended_at=time.time(),
            reason=attempt.reason,
            user_seconds=usage.ru_utime,
            system_seconds=usage.ru_stime,
            max_rss_bytes=max(
                _peak(usage.ru_maxrss) * 1024, self._memory_peaks.take(order.attempt)
            ),
            modules="" if warm is None else ",".join(warm.exited(order.attempt)),
        )
        if isinstance(attempt.failure, StartFailed):
            attempt.outcome = attempt.failure.outcome(order.attempt)
        self._table.ending.append(attempt)

    def _finish_attempts(self) -> list[Outcome]:
        """Finish the attempts that have no process left; end the leftovers of the others."""
        alive = self._leftovers() if self._table.has_unknown() else {}
        over, left = [], []
        for attempt in self._table.ending:
            processes = alive.get(attempt.order.attempt)
            if attempt.container is not None and not self._is_container_gone(attempt):
                left.append(attempt)
            elif processes and not attempt.order.settings.keep_children:
                left.append(attempt)
                _end_leftovers(attempt, processes)
            elif attempt.outcome is not None:
                outcome = self._finish(attempt, attempt.outcome)
                if isinstance(attempt.failure, HostError):
                    self.starts.refuse(attempt, str(attempt.failure))
                else:
                    over.append(outcome)
        self._table.ending = left
        return over

    def _leftovers(self) -> dict[int, list[Process]]:
        """The processes of all attempts, after the exits of first processes are recorded."""
        self._record_exits()
        alive = self._table.processes_by_attempt()
        ending = {attempt.order.attempt for attempt in self._table.ending} - set(alive)
        hidden = [attempt for attempt in ending if self._cgroups.is_populated(attempt)]
        if hidden:  # perhaps one process that is replaced by another all the time
            self._cgroups.freeze(hidden)
            alive = self._table.processes_by_attempt()
            self._cgroups.freeze(hidden, is_over=True)
        return alive

    def _finish(self, attempt: RunningAttempt, outcome: Outcome) -> Outcome:
        """Release everything of an attempt that has no process left."""
        order = attempt.order
        del self._table.by_attempt[order.attempt]
        outcome = self._cgroups.with_cause(outcome)
        outcome = self._oom_kills.with_cause(outcome, attempt.pid, attempt.mono)
        self._cgroups.remove(order.attempt)
        if order.settings.keep_children:
            self._table.kept_until = ticks_since_boot()
        close_all(attempt.lease)
        if outcome.leftovers and not self.starts.spawner.output_may_hang(order):
            note_leftovers(order, outcome.leftovers)
        self._logs.finish(order, outcome.status)
        _remove_empty_folder(order)
        return outcome

    def _is_container_gone(self, attempt: RunningAttempt) -> bool:
        """Whether a container has ended; remove it if the engine's process was killed or failed."""
        container, now = attempt.container, time.monotonic()
        assert container is not None
        if attempt.outcome is not None and attempt.outcome.status == 0:
            return True  # the engine has removed it
        if container.removal is None and not container.is_gone:
            pid = container.remove(now)
            if pid is not None:
                self._table.helper_pids.add(pid)
        return container.is_gone or container.is_overdue(now)

    def record_exits_again(self) -> None:
        """Record exits again, because the journal segment that has them is about to be removed."""
        for attempt in self._table.ending:
            attempt.is_recorded = False
        self._record_exits()

    def _record_exits(self) -> None:
        """Record the exits of first processes, in case we die while leftovers are running."""
        for attempt in self._table.ending:
            if not attempt.is_recorded and attempt.outcome is not None:
                if self._record_exit is not None:
                    try:
                        self._record_exit(attempt.outcome)
                    except OSError:
                        return  # the disk cannot be written now; the next call retries
                attempt.is_recorded = True
                failpoint("runner.after_exited")

    def end_servers(self) -> None:
        """End the fork servers that no start waits for."""
        if self.starts.warm is not None:
            self.starts.warm.end_servers()

    def close(self) -> None:
        """End the fork servers; no attempt is left."""
        if self.starts.warm is not None:
            self.starts.warm.close()


def _end_leftovers(attempt: RunningAttempt, processes: list[Process]) -> None:
    """Let the leftovers of an attempt exit by themselves, then send SIGTERM; `kill_at` follows."""
    now = time.monotonic()
    if attempt.kill_at is None and attempt.container is not None:
        attempt.kill_at = now + _CONTAINER_GRACE_SECONDS
    elif attempt.leftover_at is None:
        attempt.leftover_at = now + LEFTOVER_EXIT_SECONDS
    elif attempt.kill_at is None and now >= attempt.leftover_at:
        if attempt.outcome is not None:
            attempt.outcome = attempt.outcome._replace(leftovers=_names(processes))
        kill_processes.terminate(processes)
        attempt.kill_at = time.monotonic() + LEFTOVER_GRACE_SECONDS


def _peak(kilobytes: int) -> int:
    """The peak memory of a child; 0 if it is below our own peak.

    Before exec, the child was a copy of this process, and the kernel counts that too.
    """
    return kilobytes if kilobytes > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss else 0


def _remove_empty_folder(order: Order) -> None:
    """Remove the folder that was created for a job which stored nothing in it: it has an inode."""
    folder = order.env.get("STOKER_OUTPUT_DIR")
    if folder and folder == order.folder and not order.settings.keep_children:
        try:
            os.rmdir(folder)
        except OSError:
            pass


def _names(processes: list[Process]) -> str:
    """`python (PID 71), sh (PID 72) and 3 more`."""
    known = [(name_of(process.pid), process.pid) for process in processes]
    names = [f"{name} (PID {pid})" for name, pid in known if name]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
