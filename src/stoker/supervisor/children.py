"""The parent of running attempts: starts them, notices their ends, and ends whole trees.

Time limits and grace periods are kept here, next to the processes, so that they hold while no
daemon is there. A process that outlives the first process of its attempt (a leftover) is ended too,
unless the job asked to keep it; an attempt is over when nothing of it is left.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable

from stoker.core.formats.limit_signal import parse_warning
from stoker.core.model import Context, Outcome
from stoker.supervisor import job_processes, kill_processes, process_tags
from stoker.supervisor.empty_logs import EmptyLogs
from stoker.supervisor.job_cgroups import JobCgroups
from stoker.supervisor.job_processes import Leader
from stoker.supervisor.kill_processes import KillRetries
from stoker.supervisor.log_pool import NAMELESS_SECONDS, LogPool, PooledLog
from stoker.supervisor.logs import cap_log
from stoker.supervisor.messages import AttemptStarted, Order, Refused, Stuck
from stoker.supervisor.process_table import Process, read_process
from stoker.supervisor.spawn import (
    Environment,
    HostTrouble,
    Spawner,
    StartFailed,
    as_trouble,
    read_failure,
)
from stoker.testing.failpoints import point

LEFTOVER_GRACE_SECONDS = 2.0
_LOG_CHECK_SECONDS = 2.0
# Between two looks at a start on a file system that may hang.
_FIRST_LOOK_SECONDS = 0.01
_LONGEST_LOOK_SECONDS = 1.0


class _Attempt:
    """A living attempt, or one whose first process is gone and whose leftovers are not."""

    __slots__ = (
        "deadline", "failure", "grace", "is_recorded", "kill_at", "kills", "lease", "log",
        "look_at", "mono", "order", "outcome", "pid", "pipe", "reason", "shell", "tag", "warn_at",
    )  # fmt: skip

    def __init__(self, order: Order, tag: int, lease: list[int]) -> None:
        self.order = order
        self.lease = lease  # descriptors that hold its cards until nothing of it is left
        self.tag = tag
        self.pid = 0
        self.mono = 0.0
        self.grace = order.grace
        self.reason: str | None = None
        self.deadline: float | None = None
        self.warn_at: float | None = None
        self.log: PooledLog | None = None
        self.shell: str | None = None  # that runs its command
        self.kill_at: float | None = None
        self.kills = KillRetries()
        self.outcome: Outcome | None = None
        self.is_recorded = False  # the exit of its first process
        self.pipe: int | None = None  # of a forked start that has not executed its program yet
        self.look_at = 0.0  # at that pipe
        self.failure: HostTrouble | StartFailed | None = None


class Children:
    """All attempts whose first process this process started.

    `record_exit` is called when a first process has exited and others of its attempt may be left,
    before they are waited for. `outer_tags`: of the attempts that this process itself is part of.
    """

    def __init__(
        self,
        tag_base: int,
        log_limit: int,
        spares: LogPool | None = None,
        record_exit: Callable[[Outcome], None] | None = None,
        outer_tags: bytes = b"",
        cgroups: JobCgroups | None = None,
    ) -> None:
        self._tag_base = tag_base
        self._record_exit = record_exit
        self._outer_tags = outer_tags
        self._cgroups = JobCgroups([]) if cgroups is None else cgroups
        self._spares = spares
        self._log_limit = log_limit
        self._pad = Spawner()
        self._by_pid: dict[int, _Attempt] = {}
        self._by_attempt: dict[int, _Attempt] = {}
        self._ending: list[_Attempt] = []  # first process gone, leftovers perhaps not
        self._to_ask: list[_Attempt] = []  # to be sent SIGTERM, all from one look at the processes
        self.stuck: list[Stuck] = []  # noticed since the owner of this list last emptied it
        self._bystanders: set[int] = set()
        self._next_log_check = 0.0
        self._kids = _open_children_list()
        self._late: list[AttemptStarted | Refused] = []
        self._empty_logs = EmptyLogs()

    def __len__(self) -> int:
        return len(self._by_attempt)

    def living(self) -> list[AttemptStarted]:
        """All attempts that are not over."""
        return [
            self.with_start_time(AttemptStarted(number, attempt.pid, 0.0, attempt.mono))
            for number, attempt in self._by_attempt.items()
        ]

    def with_start_time(self, begun: AttemptStarted) -> AttemptStarted:
        """With what tells its process from a later one of the same PID, unless it was reaped."""
        attempt = self._by_pid.get(begun.pid)
        if attempt is None or attempt.order.attempt != begun.attempt:
            return begun
        process = read_process(begun.pid)
        return begun if process is None else begun._replace(pid_started=process.started)

    def pid_of(self, number: int) -> int | None:
        """The first process of an attempt that is not over."""
        attempt = self._by_attempt.get(number)
        return None if attempt is None else attempt.pid

    def ignore(self, pid: int) -> None:
        """A child of this process that is no job."""
        self._bystanders.add(pid)

    def _spawn(
        self, order: Order, context: Context, env: Environment, lease: list[int]
    ) -> AttemptStarted | None:
        attempt = _Attempt(order, process_tags.tag_of(self._tag_base, order.attempt), lease)
        env[process_tags.ENVIRONMENT_VARIABLE] = process_tags.encode_tags(
            self._outer_tags, attempt.tag
        )
        attempt.shell = context.shell if order.shell else None
        spares = self._spares
        if spares is None or order.stdout is None or not order.own_log or order.keep_children:
            self._execute(attempt, context, env, None)
        else:
            try:
                attempt.log = spares.lend(order.stdout)
            except OSError as error:
                raise as_trouble(error) from None
            try:
                self._execute(attempt, context, env, attempt.log.descriptor)
            except BaseException as error:
                spares.take_back(attempt.log, keep=isinstance(error, StartFailed))
                raise
        attempt.mono = time.monotonic()
        if not self._by_attempt:
            self._next_log_check = attempt.mono + _LOG_CHECK_SECONDS
        if order.time_limit is not None:
            attempt.deadline = attempt.mono + order.time_limit
            if order.warn is not None:
                attempt.warn_at = attempt.deadline - parse_warning(order.warn).seconds
        self._by_pid[attempt.pid] = self._by_attempt[order.attempt] = attempt
        if attempt.pipe is not None:
            attempt.look_at = attempt.mono + _FIRST_LOOK_SECONDS
            return None
        return AttemptStarted(order.attempt, attempt.pid, time.time(), attempt.mono)

    def _execute(
        self, attempt: _Attempt, context: Context, env: Environment, log: int | None
    ) -> None:
        order, pad = attempt.order, self._pad
        if pad.may_hang(order, context, env):
            attempt.pid, attempt.pipe = pad.fork(
                order, context, env, attempt.tag, attempt.lease, log
            )
        else:
            attempt.pid = pad.spawn(order, context, env, attempt.tag, attempt.lease, log)

    def start(
        self, order: Order, context: Context, env: Environment, lease: list[int]
    ) -> AttemptStarted | Outcome | Refused | None:
        """Start an attempt. The descriptors of the lease are ours from now on.

        None: the start may take long, and `late_facts` reports how it went.
        """
        try:
            return self._spawn(order, context, env, lease)
        except HostTrouble as trouble:
            _close(lease)
            return Refused(order.attempt, str(trouble))
        except StartFailed as failure:
            _close(lease)
            return _not_started(order, failure)
        except OSError as error:
            _close(lease)
            return Refused(order.attempt, error.strerror or str(error))

    def late_facts(self) -> list[AttemptStarted | Refused]:
        """What became of starts that took long, since the last call."""
        late, self._late = self._late, []
        return late

    def _look_at_start(self, attempt: _Attempt, now: float) -> None:
        """See whether a forked start has executed its program."""
        assert attempt.pipe is not None
        try:
            attempt.failure = read_failure(attempt.pipe)
        except BlockingIOError:
            waited = now - attempt.mono
            attempt.look_at = now + min(max(waited, _FIRST_LOOK_SECONDS), _LONGEST_LOOK_SECONDS)
            return
        os.close(attempt.pipe)
        attempt.pipe = None
        if attempt.failure is None:
            begun = AttemptStarted(attempt.order.attempt, attempt.pid, time.time(), attempt.mono)
            self._late.append(begun)

    def stop(self, number: int, reason: str, grace: float | None = None) -> None:
        """Ask an attempt to end; kill it when its grace is over. A second call shortens that."""
        attempt = self._by_attempt.get(number)
        if attempt is None:
            return
        if attempt.reason is None:
            attempt.reason = reason
        kill_at = time.monotonic() + (attempt.grace if grace is None else grace)
        if attempt.kill_at is None:
            self._to_ask.append(attempt)
        attempt.kill_at = kill_at if attempt.kill_at is None else min(kill_at, attempt.kill_at)
        attempt.deadline = attempt.warn_at = None

    def _ask_to_end(self) -> None:
        """SIGTERM to every process of the attempts that were stopped since the last call."""
        if self._to_ask:
            kill_processes.ask_to_end(self._processes(self._to_ask))
            self._to_ask = []
            point("runner.after_sigterm")

    def _processes_by_attempt(self) -> dict[int, list[Process]]:
        leaders = {attempt.pid: Leader(attempt.order.attempt) for attempt in self._ending}
        for pid, attempt in self._by_pid.items():
            leaders[pid] = Leader(attempt.order.attempt)
        return job_processes.processes_by_attempt(
            self._tag_base, leaders, os.getpid(), cgroups=self._cgroups.attempts_by_pid()
        )

    def _processes(self, attempts: Iterable[_Attempt]) -> list[Process]:
        """The living processes of these attempts, from one pass over the process table."""
        found = self._processes_by_attempt()
        return [one for attempt in attempts for one in found.get(attempt.order.attempt, ())]

    def _kill(self, attempts: list[_Attempt], now: float) -> None:
        """End attempts whose grace is over. What will not die is tried again, ever more rarely."""
        retries = {attempt.order.attempt: attempt.kills for attempt in attempts}
        pauses, stuck = kill_processes.kill_attempts(
            self._tag_base, retries, self._processes_by_attempt
        )
        for attempt in attempts:
            attempt.kill_at = now + pauses[attempt.order.attempt]
        self.stuck += stuck

    def _warn(self, attempt: _Attempt) -> None:
        """Its time is nearly over: the signal that it asked for.

        Only for the program itself. Its workers would mostly die of it, and so would a shell around
        it, which is left out when it has something running.
        """
        attempt.warn_at = None
        assert attempt.order.warn is not None
        warning = parse_warning(attempt.order.warn)
        shell = None if warning.is_for_shell else attempt.shell
        for pid in job_processes.programs(attempt.pid, shell):
            process = read_process(pid)
            if process is not None:
                kill_processes.send(process, warning.signal)

    def next_deadline(self) -> float | None:
        """When `tick` has something to do (monotonic)."""
        times = [self._next_log_check] if self._by_attempt else []
        if self._to_ask:
            times.append(0.0)
        for attempt in self._by_attempt.values():
            if attempt.deadline is not None:
                times.append(attempt.deadline)
            if attempt.kill_at is not None:
                times.append(attempt.kill_at)
            if attempt.warn_at is not None:
                times.append(attempt.warn_at)
            if attempt.log is not None and attempt.log.spare is not None:
                times.append(attempt.mono + NAMELESS_SECONDS)
            if attempt.pipe is not None:
                times.append(attempt.look_at)
        return min(times, default=None)

    def tick(self) -> list[Outcome]:
        """Time limits, ends of grace, logs that grew too long."""
        now = time.monotonic()
        to_kill = []
        for number, attempt in list(self._by_attempt.items()):
            if attempt.pipe is not None and now >= attempt.look_at:
                self._look_at_start(attempt, now)
            if attempt.log is not None and now >= attempt.mono + NAMELESS_SECONDS:
                attempt.log.name()
            if attempt.warn_at is not None and now >= attempt.warn_at:
                self._warn(attempt)
            if attempt.deadline is not None and now >= attempt.deadline:
                self.stop(number, "time_limit")
            if attempt.kill_at is not None and now >= attempt.kill_at:
                to_kill.append(attempt)
        self._ask_to_end()
        if to_kill:
            self._kill(to_kill, now)
        if now >= self._next_log_check:
            self._next_log_check = now + _LOG_CHECK_SECONDS
            for attempt in self._by_attempt.values():
                if attempt.order.own_log and attempt.order.stdout is not None:
                    cap_log(attempt.order.stdout, self._log_limit)
        return self.reap()

    def reap(self) -> list[Outcome]:
        """The attempts that are over."""
        over: list[Outcome] = []
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            attempt = self._by_pid.pop(pid, None)
            if attempt is None:  # an orphan of some job that had ended by itself, or no job at all
                self._bystanders.discard(pid)
                continue
            if attempt.pipe is not None:
                self._look_at_start(attempt, time.monotonic())
            attempt.outcome = Outcome(
                attempt.order.attempt, status, time.time(), attempt.reason, usage.ru_utime,
                usage.ru_stime, _peak(usage.ru_maxrss) * 1024, None,
            )  # fmt: skip
            if isinstance(attempt.failure, StartFailed):
                attempt.outcome = _not_started(attempt.order, attempt.failure)
            self._ending.append(attempt)
        if self._ending:
            self._settle(over)
        return over

    def _settle(self, over: list[Outcome]) -> None:
        """Attempts whose first process is gone are over when nothing else of them is left.

        Every leftover has an ancestor that is our child by now, so the list of our children tells
        for almost nothing that there is none, which is nearly always the case.
        """
        alive: dict[int, list[Process]] = {}
        if self._has_unknown_children():
            self._record_exits()
            alive = self._processes_by_attempt()
        left = []
        for attempt in self._ending:
            processes = alive.get(attempt.order.attempt)
            if processes and not attempt.order.keep_children:
                left.append(attempt)
                if attempt.kill_at is None:
                    kill_processes.ask_to_end(processes)
                    attempt.kill_at = time.monotonic() + LEFTOVER_GRACE_SECONDS
            elif attempt.outcome is not None:
                del self._by_attempt[attempt.order.attempt]
                self._cgroups.remove(attempt.order.attempt)
                _close(attempt.lease)
                if attempt.log is not None and self._spares is not None:
                    self._spares.take_back(attempt.log, keep=bool(attempt.outcome.status))
                    cap_log(attempt.log.path, self._log_limit)
                else:
                    self._finish_log(attempt.order)
                if isinstance(attempt.failure, HostTrouble):
                    self._late.append(Refused(attempt.order.attempt, str(attempt.failure)))
                else:
                    over.append(attempt.outcome)
        self._ending = left

    def record_exits_again(self) -> None:
        """Repeat the records of exits, because the file that has them is about to be removed."""
        for attempt in self._ending:
            attempt.is_recorded = False
        self._record_exits()

    def _record_exits(self) -> None:
        """How first processes ended must survive us while we wait for what they left behind."""
        for attempt in self._ending:
            if not attempt.is_recorded and attempt.outcome is not None:
                if self._record_exit is not None:
                    try:
                        self._record_exit(attempt.outcome)
                    except OSError:
                        return  # the disk takes no writes now; the next call tries again
                attempt.is_recorded = True
                point("runner.after_exited")

    def _finish_log(self, order: Order) -> None:
        """Remove an own log that is empty, and cut one that is too long."""
        if not order.own_log or order.stdout is None:
            return
        try:
            size = os.stat(order.stdout).st_size
        except OSError:
            return
        if size > self._log_limit:
            cap_log(order.stdout, self._log_limit)
        elif not size and not order.keep_children:
            self._empty_logs.remove(order.stdout)

    def _has_unknown_children(self) -> bool:
        if self._kids is None:
            return True
        known = len(self._by_pid) + len(self._bystanders)
        # Known ones leave the list only by our own wait, so equal numbers mean equal sets. (A PID
        # and a blank have eight bytes at most; a longer list is cut, and has more than we know.)
        return os.pread(self._kids, 8 * known + 8, 0).count(b" ") != known


def _not_started(order: Order, failure: StartFailed) -> Outcome:
    status = failure.exit_code << 8
    return Outcome(order.attempt, status, time.time(), "start_failed", detail=str(failure))


def _peak(kilobytes: int) -> int:
    """The most memory that a child had; 0: less than we have ourselves.

    Until it became another program it was a copy of us, and the kernel counts that, too.
    """
    return kilobytes if kilobytes > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss else 0


def _close(lease: list[int]) -> None:
    for descriptor in lease:
        os.close(descriptor)


def _open_children_list() -> int | None:
    """The kernel's list of our children; None on kernels without one."""
    try:
        return os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
