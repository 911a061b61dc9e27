"""Starts attempts: cold by the spawner, warm by the hook `warm`, slow ones without waiting."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from stoker.engine.model import Context, Outcome
from stoker.engine.supervisor import process_tags
from stoker.engine.supervisor.child_table import ChildTable
from stoker.engine.supervisor.job_cgroups import JobCgroups
from stoker.engine.supervisor.log_limits import LogLimits
from stoker.engine.supervisor.messages import AttemptStarted, Order, Refused
from stoker.engine.supervisor.running_attempt import RunningAttempt
from stoker.engine.supervisor.spawn import (
    Environment,
    HostError,
    Spawner,
    StartFailed,
    StartReport,
    close_all,
)
from stoker.engine.supervisor.start_hooks import container_of, find_hook
from stoker.text.activation import is_in_container
from stoker.text.limit_signal import parse_warning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.engine.supervisor.start_hooks import WarmStarts

# Poll interval for a start on a file system that may hang.
_FIRST_POLL_SECONDS = 0.01
_MAX_POLL_SECONDS = 1.0


class AttemptStarts:
    """`record_begin` is called before the first process of a warm start executes anything; if it
    returns a reason, the start is refused. `outer_tags`: tags of the attempts that this process
    itself belongs to."""

    def __init__(
        self,
        table: ChildTable,
        cgroups: JobCgroups,
        logs: LogLimits,
        record_begin: Callable[[Order], str | None] | None,
        outer_tags: bytes,
    ) -> None:
        self._table = table
        self._cgroups = cgroups
        self._logs = logs
        self._record_begin = record_begin
        self._outer_tags = outer_tags
        self.spawner = Spawner(cgroups)
        self.warm: WarmStarts | None = None
        self._late_events: list[AttemptStarted | Outcome | Refused] = []

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
            attempt = self._new_attempt(order, context, env, lease)
            attempt.note = note
            attempt.container = container_of(order.settings.activation, env, attempt.tag)
            # A comparison of the code takes its time, too.
            if order.code_check or self.spawner.may_hang(order, context, env):
                attempt.pid, pipe = self.spawner.fork(order, context, env, attempt.tag, lease)
                attempt.report = StartReport(pipe)
            else:
                attempt.pid = self.spawner.spawn(order, context, env, attempt.tag, lease)
            self._supervise(attempt)
        except (HostError, StartFailed, OSError) as error:
            close_all(lease)
            self._cgroups.remove(order.attempt)
            if isinstance(error, StartFailed):
                return error.outcome(order.attempt)
            text = error.strerror if isinstance(error, OSError) else None
            return Refused(order.attempt, text or str(error))
        return attempt.started() if attempt.report is None else None

    def late_events(self) -> list[AttemptStarted | Outcome | Refused]:
        """The results of slow starts since the last call."""
        late, self._late_events = self._late_events, []
        return late

    def refuse(self, attempt: RunningAttempt, why: str) -> None:
        """The host could not start an attempt."""
        self._late_events.append(Refused(attempt.order.attempt, why))

    def _new_attempt(
        self, order: Order, context: Context, env: Environment, lease: list[int]
    ) -> RunningAttempt:
        tag = process_tags.tag_of(self._table.tag_base, order.attempt)
        env[process_tags.ENVIRONMENT_VARIABLE] = process_tags.encode_tags(self._outer_tags, tag)
        attempt = RunningAttempt(order, tag, lease)
        if order.shell and not is_in_container(order.settings.activation):
            attempt.shell = context.shell  # a container has it inside; its engine passes signals on
        return attempt

    def _supervise(self, attempt: RunningAttempt) -> None:
        """The first process exists: count its limits from now."""
        order = attempt.order
        if order.memory_limit is not None or order.cpu_limit:
            self._cgroups.limit(order, attempt.pid)
        self._add(attempt)
        self._table.by_pid[attempt.pid] = attempt
        attempt.poll_at = attempt.mono + _FIRST_POLL_SECONDS
        if order.time_limit is not None:
            attempt.deadline = attempt.mono + order.time_limit
            if order.settings.signal is not None:
                attempt.warn_at = attempt.deadline - parse_warning(order.settings.signal).seconds

    def _add(self, attempt: RunningAttempt) -> None:
        attempt.mono = time.monotonic()
        self._logs.check_soon(attempt.mono, is_first=not self._table.by_attempt)
        self._table.by_attempt[attempt.order.attempt] = attempt

    def poll(self, attempt: RunningAttempt, now: float) -> None:
        """Check whether a forked start has executed its program, or has compared the code."""
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

    def start_warm(
        self, order: Order, context: Context, env: Environment, lease: list[int]
    ) -> str | None:
        """Begin a warm start; takes ownership of the lease's descriptors.

        Nothing of the job is executed before `record_begin` and `confirm`; `late_events` reports
        the start. Returns why it cannot be warm: then call `start` with this note.
        """
        if self.warm is None:
            make = find_hook("warm")
            if make is None:
                return "this Stoker is installed without warm starts"
            self.warm = make(self.spawner, self._cgroups, self._table.helper_pids.add)
        attempt = self._new_attempt(order, context, env, lease)
        why = self.warm.begin(attempt, context, env)
        if why is None:
            attempt.cold_start = (context, env)
            self._add(attempt)
        return why

    def poll_warm(self) -> None:
        """Take the results of warm starts."""
        if self.warm is None:
            return
        for attempt_id, pid, note in self.warm.decided(time.monotonic()):
            attempt = self._table.by_attempt[attempt_id]
            assert attempt.cold_start is not None
            if pid is None:
                self._start_cold(attempt, note)
            elif self._is_refused(attempt):
                self.warm.cancel(attempt_id)
            else:
                if attempt.code_note:
                    self.spawner.write_note(attempt.order, attempt.cold_start[0])
                attempt.pid, attempt.note, attempt.cold_start = pid, note, None
                self._supervise(attempt)
                self._late_events.append(attempt.started())

    def confirm(self, attempt_id: int) -> None:
        """Let the first process of a warm start execute its program."""
        if self.warm is not None:
            self.warm.confirm(attempt_id)

    def _is_refused(self, attempt: RunningAttempt) -> bool:
        """Record that an attempt begins; True if that is refused, and the attempt is dropped."""
        refusal = None if self._record_begin is None else self._record_begin(attempt.order)
        if refusal is None:
            return False
        self._drop(attempt)
        close_all(attempt.lease)
        self.refuse(attempt, refusal)
        return True

    def _continue_warm(self, attempt: RunningAttempt) -> None:
        """Continue a warm start whose code was compared."""
        assert self.warm is not None and attempt.cold_start is not None
        attempt.order = attempt.order._replace(code_check="", code_note=attempt.code_note)
        why = self.warm.begin(attempt, *attempt.cold_start)
        if why is not None:
            self._start_cold(attempt, why)

    def _start_cold(self, attempt: RunningAttempt, why: str | None) -> None:
        """Start an attempt whose warm start failed."""
        if self._is_refused(attempt):
            return
        assert attempt.cold_start is not None
        context, env = attempt.cold_start
        self._drop(attempt)
        event = self.start(attempt.order, context, env, attempt.lease, note=why)
        if event is not None:
            self._late_events.append(event)

    def _drop(self, attempt: RunningAttempt) -> None:
        """Forget an attempt of which nothing was executed."""
        del self._table.by_attempt[attempt.order.attempt]
        self._cgroups.remove(attempt.order.attempt)

    def cancel(self, attempt: RunningAttempt) -> None:
        """End an attempt whose warm start is under way: nothing was executed."""
        if attempt.report is not None:
            attempt.report.close()
            attempt.report = None
        elif self.warm is not None:
            self.warm.cancel(attempt.order.attempt)
        attempt.cold_start = None
        attempt.outcome = Outcome(
            attempt=attempt.order.attempt,
            status=signal.SIGTERM,
            ended_at=time.time(),
            reason=attempt.reason,
        )
        self._table.ending.append(attempt)
