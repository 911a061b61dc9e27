"""The parent of running attempts: starts them, reaps them, and kills their process trees.

Time limits and grace periods are enforced here, in the parent process, so they hold while no daemon
is running. A process that outlives the first process of its attempt (a leftover) is killed too,
unless the job has `keep_children`; an attempt has ended when none of its processes is left.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from stoker.engine.model import Context, Outcome
from stoker.engine.supervisor import job_processes, kill_processes, process_tags
from stoker.engine.supervisor.empty_logs import EmptyLogs
from stoker.engine.supervisor.job_cgroups import JobCgroups, Limits
from stoker.engine.supervisor.job_processes import Leader
from stoker.engine.supervisor.job_python import python_of_process
from stoker.engine.supervisor.logs import cap_log
from stoker.engine.supervisor.memory_peaks import MemoryPeaks
from stoker.engine.supervisor.messages import PREEMPTED, AttemptStarted, Order, Refused, Stuck
from stoker.engine.supervisor.oom_kills import OomKills
from stoker.engine.supervisor.process_table import Process, name_of, read_process, ticks_since_boot
from stoker.engine.supervisor.running_attempt import RunningAttempt
from stoker.engine.supervisor.spawn import Environment, HostError, Spawner, StartFailed, StartReport
from stoker.engine.supervisor.start_hooks import container_of, find_hook
from stoker.testing.failpoints import failpoint
from stoker.text.byte_text import to_system
from stoker.text.limit_signal import parse_warning, seconds_to_save

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.engine.supervisor.start_hooks import WarmStarts

# Leftovers get SIGTERM after this time: helpers such as those of multiprocessing exit before.
LEFTOVER_EXIT_SECONDS = 0.5
LEFTOVER_GRACE_SECONDS = 2.0
# Helpers of podman clean up after a container; they are not interrupted at once.
_CONTAINER_GRACE_SECONDS = 10.0
_NAMED = 3  # leftovers whose names are recorded
_SAMPLE_SECONDS = 2.0
# Between checks of the size of logs: short after a start, and while a log grows fast.
_MIN_LOG_CHECK_SECONDS = 0.05
_MAX_LOG_CHECK_SECONDS = 0.5
# Poll interval for a start on a file system that may hang.
_FIRST_POLL_SECONDS = 0.01
_MAX_POLL_SECONDS = 1.0


class Children:
    """All attempts whose first process this process started.

    `record_exit` is called when a first process has exited and other processes of its attempt may
    be left. `record_begin` is called before the first process of a warm start executes anything; if
    it returns a reason, the start is refused. `outer_tags`: tags of the attempts that this process
    itself belongs to. `has_only_jobs`: every child of this process that is not known here is an
    orphan of an attempt. `empty_logs`: records the empty logs that are removed; without it, only
    those of jobs that succeeded are removed.
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
        self._tag_base = tag_base
        self._has_only_jobs = has_only_jobs
        self._kept_until = 0  # strays that started earlier may belong to a job with keep_children
        self._record_begin = record_begin
        self._warm: WarmStarts | None = None
        self._record_exit = record_exit
        self._outer_tags = outer_tags
        self._cgroups = JobCgroups([], base=tag_base) if cgroups is None else cgroups
        self._log_limit = log_limit
        self._spawner = Spawner(self._cgroups)
        self._by_pid: dict[int, RunningAttempt] = {}
        self._by_attempt: dict[int, RunningAttempt] = {}
        self._ending: list[RunningAttempt] = []  # first process exited, leftovers possible
        self._to_terminate: list[RunningAttempt] = []  # to get SIGTERM after one pass over /proc
        self.stuck: list[Stuck] = []  # unkillable attempts, until the caller empties the list
        self._helper_pids: set[int] = set()
        self._next_log_check = self._next_sample = 0.0
        self._log_check_seconds = _MIN_LOG_CHECK_SECONDS
        self._memory_peaks = MemoryPeaks(tag_base)
        self._oom_kills = OomKills()
        self._children_list = _open_children_list()
        self._late_events: list[AttemptStarted | Outcome | Refused] = []
        self._empty_logs = empty_logs

    def __len__(self) -> int:
        return len(self._by_attempt)

    def live_attempts(self) -> list[AttemptStarted]:
        """All attempts that have not ended."""
        return [
            self.with_start_time(
                AttemptStarted(attempt_id, attempt.pid, 0.0, attempt.mono, note=attempt.note)
            )
            for attempt_id, attempt in self._by_attempt.items()
        ]

    def with_start_time(self, started: AttemptStarted) -> AttemptStarted:
        """Add the start time of the process, which detects PID reuse, and its version of Python.

        A process that was reaped has neither.
        """
        attempt = self._by_pid.get(started.pid)
        if attempt is None or attempt.order.attempt != started.attempt:
            return started
        process = read_process(started.pid)
        if process is None:
            return started
        python = python_of_process(started.pid)
        return started._replace(pid_started=process.started, python=python)

    def pid_of(self, attempt_id: int) -> int | None:
        """The PID of the first process of a running attempt; None if it has ended."""
        attempt = self._by_attempt.get(attempt_id)
        return None if attempt is None else attempt.pid

    def ignore(self, pid: int) -> None:
        """Declare that a child of this process is not a job."""
        self._helper_pids.add(pid)

    def _spawn(
        self,
        order: Order,
        context: Context,
        env: Environment,
        lease: list[int],
        note: str | None,
    ) -> AttemptStarted | None:
        attempt = self._new_attempt(order, context, env, lease)
        attempt.note = note
        attempt.container = container_of(order.settings.activation, env, attempt.tag)
        if attempt.container is not None:
            attempt.shell = None  # it is inside; the engine passes signals on
        self._execute(attempt, context, env)
        return self._started(attempt)

    def _new_attempt(
        self, order: Order, context: Context, env: Environment, lease: list[int]
    ) -> RunningAttempt:
        attempt = RunningAttempt(order, process_tags.tag_of(self._tag_base, order.attempt), lease)
        env[process_tags.ENVIRONMENT_VARIABLE] = process_tags.encode_tags(
            self._outer_tags, attempt.tag
        )
        attempt.shell = context.shell if order.shell else None
        return attempt

    def _started(self, attempt: RunningAttempt) -> AttemptStarted | None:
        """Count time limits from now; None if it is not known yet whether its program exists."""
        order = attempt.order
        if order.memory_limit is not None or order.cpu_limit:
            limits = Limits(order.memory_limit, order.cpu_limit, order.cgroup)
            self._cgroups.limit(order.attempt, attempt.pid, limits)
        attempt.mono = time.monotonic()
        self._check_logs_soon(attempt.mono)
        if order.time_limit is not None:
            attempt.deadline = attempt.mono + order.time_limit
            if order.settings.signal is not None:
                attempt.warn_at = attempt.deadline - parse_warning(order.settings.signal).seconds
        self._by_pid[attempt.pid] = self._by_attempt[order.attempt] = attempt
        if attempt.report is not None:
            attempt.poll_at = attempt.mono + _FIRST_POLL_SECONDS
            return None
        return attempt.started()

    def _execute(self, attempt: RunningAttempt, context: Context, env: Environment) -> None:
        order, spawner = attempt.order, self._spawner
        # A comparison of the code takes its time, too.
        if order.code_check or spawner.may_hang(order, context, env):
            attempt.pid, pipe = spawner.fork(order, context, env, attempt.tag, attempt.lease)
            attempt.report = StartReport(pipe)
        else:
            attempt.pid = spawner.spawn(order, context, env, attempt.tag, attempt.lease)

    def start(
        self,
        order: Order,
        context: Context,
        env: Environment,
        lease: list[int],
        note: str | None = None,
    ) -> AttemptStarted | Outcome | Refused | None:
        """Start an attempt; takes ownership of the lease's descriptors.

        Returns None if the start may take long; `late_events` then reports its result. `note`: why
        its warm start became a cold one.
        """
        try:
            return self._spawn(order, context, env, lease, note)
        except (HostError, StartFailed, OSError) as error:
            _close(lease)
            self._cgroups.remove(order.attempt)
            if isinstance(error, StartFailed):
                return _not_started(order, error)
            text = error.strerror if isinstance(error, OSError) else None
            return Refused(order.attempt, text or str(error))

    # -- warm starts ---------------------------------------------------------------------------

    def start_warm(
        self, order: Order, context: Context, env: Environment, lease: list[int]
    ) -> str | None:
        """Begin a warm start; takes ownership of the lease's descriptors.

        Nothing of the job is executed before `record_begin` and `confirm_start`; `late_events`
        reports the start. Returns why it cannot be warm: then call `start` with this note.
        """
        if self._warm is None:
            make = find_hook("warm")
            if make is None:
                return "this Stoker is installed without warm starts"
            self._warm = make(self._spawner, self._cgroups, self.ignore)
        attempt = self._new_attempt(order, context, env, lease)
        why = self._warm.begin(attempt, context, env)
        if why is not None:
            return why
        attempt.mono = time.monotonic()
        attempt.cold_start = (context, env)
        self._check_logs_soon(attempt.mono)
        self._by_attempt[order.attempt] = attempt
        return None

    def warm_events(self) -> int | None:
        """A descriptor to wait for, besides SIGCHLD; None before the first warm start."""
        return None if self._warm is None else self._warm.fileno()

    def confirm_start(self, attempt_id: int) -> None:
        """Let the first process of a warm start execute its program."""
        if self._warm is not None:
            self._warm.confirm(attempt_id)

    def end_servers(self) -> None:
        """End the fork servers that no start waits for."""
        if self._warm is not None:
            self._warm.end_servers()

    def _poll_warm(self) -> None:
        if self._warm is None:
            return
        for attempt_id, pid, note in self._warm.poll(time.monotonic()):
            attempt = self._by_attempt[attempt_id]
            assert attempt.cold_start is not None
            if pid is None:
                self._start_cold(attempt, note)
            elif self._is_refused(attempt):
                self._warm.cancel(attempt_id)
            else:
                if attempt.code_note:
                    self._spawner.write_note(attempt.order, attempt.cold_start[0])
                attempt.pid, attempt.note, attempt.cold_start = pid, note, None
                started = self._started(attempt)
                assert started is not None
                self._late_events.append(started)

    def _is_refused(self, attempt: RunningAttempt) -> bool:
        """Record that an attempt begins; True if that is refused, and the attempt is dropped."""
        refusal = None if self._record_begin is None else self._record_begin(attempt.order)
        if refusal is None:
            return False
        self._drop(attempt)
        self._late_events.append(Refused(attempt.order.attempt, refusal))
        return True

    def _continue_warm(self, attempt: RunningAttempt) -> None:
        """Continue a warm start whose code was compared."""
        assert self._warm is not None and attempt.cold_start is not None
        attempt.order = attempt.order._replace(code_check="", code_note=attempt.code_note)
        why = self._warm.begin(attempt, *attempt.cold_start)
        if why is not None:
            self._start_cold(attempt, why)

    def _start_cold(self, attempt: RunningAttempt, why: str | None) -> None:
        """Start an attempt whose warm start failed."""
        if self._is_refused(attempt):
            return
        assert attempt.cold_start is not None
        context, env = attempt.cold_start
        self._drop(attempt, keeps_lease=True)
        event = self.start(attempt.order, context, env, attempt.lease, note=why)
        if event is not None:
            self._late_events.append(event)

    def _drop(self, attempt: RunningAttempt, *, keeps_lease: bool = False) -> None:
        """Forget an attempt of which nothing was executed."""
        del self._by_attempt[attempt.order.attempt]
        self._cgroups.remove(attempt.order.attempt)
        if not keeps_lease:
            _close(attempt.lease)

    def _stop_waiting(self, attempt: RunningAttempt) -> None:
        """End an attempt whose warm start is under way: nothing was executed."""
        if attempt.report is not None:
            attempt.report.close()
            attempt.report = None
        elif self._warm is not None:
            self._warm.cancel(attempt.order.attempt)
        attempt.cold_start = None
        attempt.outcome = Outcome(
            attempt=attempt.order.attempt,
            status=signal.SIGTERM,
            ended_at=time.time(),
            reason=attempt.reason,
        )
        self._ending.append(attempt)

    def late_events(self) -> list[AttemptStarted | Outcome | Refused]:
        """The results of slow starts since the last call."""
        late, self._late_events = self._late_events, []
        return late

    def _poll_start(self, attempt: RunningAttempt, now: float) -> None:
        """Check whether a forked start has executed its program."""
        assert attempt.report is not None
        try:
            attempt.report.read()
        except BlockingIOError:
            waited = now - attempt.mono
            attempt.poll_at = now + min(max(waited, _FIRST_POLL_SECONDS), _MAX_POLL_SECONDS)
            return
        attempt.failure = attempt.report.failure
        attempt.code_note = attempt.report.code_note or attempt.code_note
        attempt.report = None
        if attempt.cold_start is not None:
            self._continue_warm(attempt)
        elif attempt.failure is None:
            self._late_events.append(attempt.started())

    def stop(self, attempt_id: int, reason: str, grace: float | None = None) -> None:
        """Send SIGTERM, and SIGKILL after the grace period. A second call may shorten it.

        A job with `--signal` that gives way to another job gets that signal instead of SIGTERM.
        """
        attempt = self._by_attempt.get(attempt_id)
        if attempt is None:
            return
        if attempt.reason is None:
            attempt.reason = reason
        warn = attempt.order.settings.signal if reason == PREEMPTED else None
        if grace is None:
            grace = seconds_to_save(attempt.grace, warn)
        kill_at = time.monotonic() + grace
        if attempt.kill_at is None and warn is not None:
            self._warn(attempt)
        elif attempt.kill_at is None:
            self._to_terminate.append(attempt)
            if attempt.cold_start is not None:
                self._stop_waiting(attempt)
        attempt.kill_at = kill_at if attempt.kill_at is None else min(kill_at, attempt.kill_at)
        attempt.deadline = attempt.warn_at = None
        attempt.resume_at = None  # `terminate` continues its processes

    def pause(self, attempt_id: int, seconds: float) -> None:
        """Stop all processes of an attempt, for `seconds` at most, unless it is being stopped."""
        attempt = self._by_attempt.get(attempt_id)
        if attempt is None or attempt.kill_at is not None or attempt.outcome is not None:
            return
        attempt.resume_at = time.monotonic() + seconds
        kill_processes.pause(lambda: self._processes([attempt]))
        self._pause_container(attempt, is_over=False)

    def resume(self, attempt_id: int) -> None:
        """Continue the processes of an attempt; does nothing if they are not paused."""
        attempt = self._by_attempt.get(attempt_id)
        if attempt is None or attempt.resume_at is None:
            return
        attempt.resume_at = None
        kill_processes.resume(self._processes([attempt]))
        self._pause_container(attempt, is_over=True)

    def _pause_container(self, attempt: RunningAttempt, *, is_over: bool) -> None:
        pid = None if attempt.container is None else attempt.container.pause(is_over=is_over)
        if pid is not None:
            self._helper_pids.add(pid)

    def _send_sigterm(self) -> None:
        """Send SIGTERM to all processes of the attempts stopped since the last call."""
        if self._to_terminate:
            kill_processes.terminate(self._to_signal(self._to_terminate))
            self._to_terminate = []
            failpoint("runner.after_sigterm")

    def _to_signal(self, attempts: list[RunningAttempt]) -> list[Process]:
        """The processes of these attempts; of a container, only the one that passes signals on."""
        contained = [attempt.pid for attempt in attempts if attempt.container is not None]
        found = self._processes(attempt for attempt in attempts if attempt.container is None)
        firsts = (read_process(pid) for pid in contained if pid in self._by_pid)
        return [*found, *(process for process in firsts if process is not None)]

    def _processes_by_attempt(self) -> dict[int, list[Process]]:
        leaders = {attempt.pid: Leader(attempt.order.attempt) for attempt in self._ending}
        for pid, attempt in self._by_pid.items():
            leaders[pid] = Leader(attempt.order.attempt)
        return job_processes.processes_by_attempt(
            self._tag_base,
            leaders,
            os.getpid(),
            cgroups=self._cgroups.attempts_by_pid(),
            owner_of_stray=self._owner_of_stray,
        )

    def _owner_of_stray(self, process: Process) -> int | None:
        """The attempt of an orphan that has lost its tag, session, ancestors and environment.

        It writes to the attempt's log, or no other attempt can have started it.
        """
        if process.pid in self._helper_pids:
            return None
        attempts = [one for one in self._by_attempt.values() if one.began <= process.started]
        for attempt in attempts:
            path = attempt.order.stdout
            if path is not None and attempt.order.own_log and _writes_to(process.pid, path):
                return attempt.order.attempt
        if not self._has_only_jobs or process.started <= self._kept_until:
            return None
        if any(attempt.order.settings.keep_children for attempt in attempts):
            return None
        running = [attempt for attempt in attempts if attempt.outcome is None]
        if len(running) > 1 or (running and len(attempts) > 1):
            return None  # it is killed with the last of them
        return attempts[-1].order.attempt if attempts else None

    def _processes(self, attempts: Iterable[RunningAttempt]) -> list[Process]:
        """The processes of these attempts, from one pass over the process table."""
        found = self._processes_by_attempt()
        return [one for attempt in attempts for one in found.get(attempt.order.attempt, ())]

    def _kill(self, attempts: list[RunningAttempt], now: float) -> None:
        """Kill attempts whose grace period is over; survivors are retried with a backoff."""
        retries = {attempt.order.attempt: attempt.kills for attempt in attempts}
        pauses, stuck = kill_processes.kill_attempts(
            self._tag_base, retries, self._processes_by_attempt, self._cgroups
        )
        for attempt in attempts:
            attempt.kill_at = now + pauses[attempt.order.attempt]
        self.stuck += stuck

    def _warn(self, attempt: RunningAttempt) -> None:
        """Send the signal that announces the time limit, as requested by the job.

        Only the program itself gets it: most worker processes would die of it, and so would a shell
        that is waiting for the program, unless its text has a `trap` for it.
        """
        attempt.warn_at = None
        assert attempt.order.settings.signal is not None
        warning = parse_warning(attempt.order.settings.signal)
        shell = None if warning.is_for_shell else attempt.shell
        pids = job_processes.programs(attempt.pid, shell)
        if (
            attempt.pid not in pids
            and _has_trap(attempt.order.argv[0], warning.signal)
            and job_processes.catches(attempt.pid, warning.signal)
        ):
            pids.append(attempt.pid)
        for pid in pids:
            process = read_process(pid)
            if process is not None:
                kill_processes.send(process, warning.signal)

    def next_deadline(self) -> float | None:
        """When to call `enforce_limits` next (monotonic)."""
        times = [self._next_log_check] if self._by_attempt else []
        if self._to_terminate:
            times.append(0.0)
        for attempt in self._by_attempt.values():
            if attempt.deadline is not None:
                times.append(attempt.deadline)
            if attempt.kill_at is not None:
                times.append(attempt.kill_at)
            elif attempt.leftover_at is not None:
                times.append(attempt.leftover_at)
            if attempt.warn_at is not None:
                times.append(attempt.warn_at)
            if attempt.resume_at is not None:
                times.append(attempt.resume_at)
            if attempt.report is not None:
                times.append(attempt.poll_at)
            if attempt.container is not None and attempt.container.gives_up_at is not None:
                times.append(attempt.container.gives_up_at)
        warm = None if self._warm is None else self._warm.next_deadline()
        if warm is not None:
            times.append(warm)
        return min(times, default=None)

    def enforce_limits(self) -> list[Outcome]:
        """Enforce time limits, grace periods and the log size limit, then reap."""
        now = time.monotonic()
        to_kill = []
        for attempt_id, attempt in list(self._by_attempt.items()):
            if attempt.report is not None and now >= attempt.poll_at:
                self._poll_start(attempt, now)
            if attempt.warn_at is not None and now >= attempt.warn_at:
                self._warn(attempt)
            if attempt.resume_at is not None and now >= attempt.resume_at:
                self.resume(attempt_id)
            if attempt.deadline is not None and now >= attempt.deadline:
                self.stop(attempt_id, "time_limit")
            if attempt.kill_at is not None and now >= attempt.kill_at:
                to_kill.append(attempt)
        self._send_sigterm()
        if to_kill:
            self._kill(to_kill, now)
        if now >= self._next_log_check:
            self._check_logs(now)
        if now >= self._next_sample:
            self._next_sample = now + _SAMPLE_SECONDS
            measured = [id for id, one in self._by_attempt.items() if one.order.measures_memory]
            self._memory_peaks.sample(measured, now)
            self._oom_kills.sample()
        return self.reap()

    def _check_logs_soon(self, now: float) -> None:
        """Called before an attempt is added."""
        self._log_check_seconds = _MIN_LOG_CHECK_SECONDS
        due = now + _MIN_LOG_CHECK_SECONDS
        self._next_log_check = min(due, self._next_log_check) if self._by_attempt else due

    def _check_logs(self, now: float) -> None:
        """Cap the logs that are too long; if one grows fast, check again soon."""
        is_fast = False
        for attempt in self._by_attempt.values():
            if attempt.order.own_log and attempt.order.stdout is not None:
                size = cap_log(attempt.order.stdout, self._log_limit)
                is_fast |= size - attempt.log_size > self._log_limit // 64
                attempt.log_size = size
        pause = _MIN_LOG_CHECK_SECONDS if is_fast else 2 * self._log_check_seconds
        self._log_check_seconds = min(pause, _MAX_LOG_CHECK_SECONDS)
        self._next_log_check = now + self._log_check_seconds

    def reap(self) -> list[Outcome]:
        """Reap exited processes; returns the attempts that have ended."""
        over: list[Outcome] = []
        self._poll_warm()
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            attempt = self._by_pid.pop(pid, None)
            if attempt is None:  # an orphan of a job, or a helper process
                self._helper_pids.discard(pid)
                for one in self._ending:
                    if one.container is not None:
                        one.container.removed(pid)
                continue
            if attempt.report is not None:
                self._poll_start(attempt, time.monotonic())
            modules = () if self._warm is None else self._warm.exited(attempt.order.attempt)
            attempt.outcome = Outcome(
                attempt=attempt.order.attempt,
                status=status,
                ended_at=time.time(),
                reason=attempt.reason,
                user_seconds=usage.ru_utime,
                system_seconds=usage.ru_stime,
                max_rss_bytes=max(
                    _peak(usage.ru_maxrss) * 1024, self._memory_peaks.take(attempt.order.attempt)
                ),
                modules=",".join(modules),
            )
            if isinstance(attempt.failure, StartFailed):
                attempt.outcome = _not_started(attempt.order, attempt.failure)
            self._ending.append(attempt)
        if self._ending:
            self._finish_attempts(over)
        return over

    def _finish_attempts(self, over: list[Outcome]) -> None:
        """Finish the attempts that have no process left; kill the leftovers of the others.

        We are a subreaper, so every leftover has an ancestor among our children. The kernel's list
        of our children therefore shows cheaply that there are no leftovers, the usual case.
        """
        alive: dict[int, list[Process]] = {}
        if self._has_unknown_children():
            self._record_exits()
            alive = self._processes_by_attempt()
            ending = {attempt.order.attempt for attempt in self._ending} - set(alive)
            hidden = [attempt for attempt in ending if self._cgroups.is_populated(attempt)]
            if hidden:  # perhaps one process that is replaced by another all the time
                self._cgroups.freeze(hidden)
                alive = self._processes_by_attempt()
                self._cgroups.freeze(hidden, is_over=True)
        left = []
        for attempt in self._ending:
            processes = alive.get(attempt.order.attempt)
            if attempt.container is not None and not self._is_container_gone(attempt):
                left.append(attempt)
            elif processes and not attempt.order.settings.keep_children:
                left.append(attempt)
                if attempt.kill_at is None and attempt.container is not None:
                    attempt.kill_at = time.monotonic() + _CONTAINER_GRACE_SECONDS
                elif attempt.leftover_at is None:
                    attempt.leftover_at = time.monotonic() + LEFTOVER_EXIT_SECONDS
                elif attempt.kill_at is None and time.monotonic() >= attempt.leftover_at:
                    if attempt.outcome is not None:
                        names = _names(processes)
                        attempt.outcome = attempt.outcome._replace(leftovers=names)
                    kill_processes.terminate(processes)
                    attempt.kill_at = time.monotonic() + LEFTOVER_GRACE_SECONDS
            elif attempt.outcome is not None:
                del self._by_attempt[attempt.order.attempt]
                attempt.outcome = self._oom_kills.with_cause(
                    self._cgroups.with_cause(attempt.outcome), attempt.pid, attempt.mono
                )
                self._cgroups.remove(attempt.order.attempt)
                if attempt.order.settings.keep_children:
                    self._kept_until = ticks_since_boot()
                _close(attempt.lease)
                if attempt.outcome.leftovers:
                    self._log_leftovers(attempt, attempt.outcome.leftovers)
                self._finish_log(attempt.order, attempt.outcome.status)
                _remove_empty_folder(attempt.order)
                if isinstance(attempt.failure, HostError):
                    self._late_events.append(Refused(attempt.order.attempt, str(attempt.failure)))
                else:
                    over.append(attempt.outcome)
        self._ending = left

    def _is_container_gone(self, attempt: RunningAttempt) -> bool:
        """Whether a container has ended; remove it if the engine's process was killed or failed."""
        container, now = attempt.container, time.monotonic()
        assert container is not None
        if attempt.outcome is not None and attempt.outcome.status == 0:
            return True  # the engine has removed it
        if container.removal is None and not container.is_gone:
            pid = container.remove(now)
            if pid is not None:
                self._helper_pids.add(pid)
        return container.is_gone or container.is_overdue(now)

    def record_exits_again(self) -> None:
        """Record exits again, because the journal segment that has them is about to be removed."""
        for attempt in self._ending:
            attempt.is_recorded = False
        self._record_exits()

    def _record_exits(self) -> None:
        """Record the exits of first processes, in case we die while leftovers are running."""
        for attempt in self._ending:
            if not attempt.is_recorded and attempt.outcome is not None:
                if self._record_exit is not None:
                    try:
                        self._record_exit(attempt.outcome)
                    except OSError:
                        return  # the disk cannot be written now; the next call retries
                attempt.is_recorded = True
                failpoint("runner.after_exited")

    def _log_leftovers(self, attempt: RunningAttempt, names: str) -> None:
        """Write the last line of a log, about processes that were stopped."""
        order = attempt.order
        if order.stdout is None or self._spawner.output_may_hang(order):
            return
        line = f"stoker: the command has exited; stopped what it left running: {names}\n"
        try:
            if os.path.isfile(order.stdout):
                with open(order.stdout, "ab", buffering=0) as file:
                    file.write(to_system(line))
        except OSError:
            pass  # the database has it too

    def _finish_log(self, order: Order, status: int | None) -> None:
        """Remove an empty log, and cut one that is too long; a file the user chose is kept."""
        if not order.own_log or order.stdout is None:
            return
        try:
            size = os.stat(order.stdout).st_size
        except OSError:
            return
        if size > self._log_limit:
            cap_log(order.stdout, self._log_limit)
        elif size or order.settings.keep_children:
            return
        elif self._empty_logs is not None:
            self._empty_logs.remove(order.stdout)
        elif not status:
            with suppress(OSError):
                os.unlink(order.stdout)

    def close(self) -> None:
        """End the fork servers; no attempt is left."""
        if self._warm is not None:
            self._warm.close()

    def _has_unknown_children(self) -> bool:
        if self._children_list is None:
            return True
        known = len(self._by_pid) + len(self._helper_pids)
        # Known children leave the list only when we reap them, so equal counts mean equal sets. (A
        # PID and a space have at most eight bytes; a list that is cut here has unknown children.)
        return os.pread(self._children_list, 8 * known + 8, 0).count(b" ") != known


def _not_started(order: Order, failure: StartFailed) -> Outcome:
    return Outcome(
        attempt=order.attempt,
        status=failure.exit_code << 8,
        ended_at=time.time(),
        reason=failure.cause,
        detail=str(failure),
    )


def _peak(kilobytes: int) -> int:
    """The peak memory of a child; 0 if it is below our own peak.

    Before exec, the child was a copy of this process, and the kernel counts that too.
    """
    return kilobytes if kilobytes > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss else 0


def _has_trap(text: str, number: int) -> bool:
    """Whether a shell text sets a trap for a signal. (bash has a handler after `trap … EXIT`.)"""
    name = signal.Signals(number).name.removeprefix("SIG")
    lines = (line.partition("trap ")[2].upper() for line in text.splitlines())
    return any(name in line or str(number) in line.split() for line in lines)


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


def _writes_to(pid: int, path: str) -> bool:
    """Whether stdout or stderr of a process is a file."""
    for number in (1, 2):
        try:
            if os.path.samefile(f"/proc/{pid}/fd/{number}", path):
                return True
        except OSError:
            continue  # closed, or not permitted
    return False


def _close(lease: list[int]) -> None:
    for descriptor in lease:
        os.close(descriptor)


def _open_children_list() -> int | None:
    """The kernel's list of our children; None on kernels without one."""
    try:
        return os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
