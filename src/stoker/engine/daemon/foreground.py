"""The scheduling loop in the foreground: its own database, jobs as children, no daemon.

A source provides the jobs, e.g. an endless pipe; only a few of them wait in the database at a time.
The run ends when the source has no more jobs and all jobs have ended. Processes that a job may
leave behind (`keep_children`) outlive a run that ends normally; if the run is interrupted or
killed, they are killed too. Ctrl-Z suspends the jobs together with the run, `fg` continues them.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable

from stoker.engine.daemon.clock import SystemClock
from stoker.engine.daemon.event_poll import EventPoll
from stoker.engine.daemon.gpus.gpus import Gpus
from stoker.engine.daemon.interfaces import EventListener, Host
from stoker.engine.daemon.loop import Loop
from stoker.engine.model import JobSpec
from stoker.engine.store import attempts, meta
from stoker.engine.store.database import Database
from stoker.engine.store.submit import Submission
from stoker.engine.supervisor import job_processes, kill_processes, process_tags
from stoker.engine.supervisor.empty_logs import EmptyLogs
from stoker.engine.supervisor.foreground_jobs import ForegroundJobs
from stoker.engine.supervisor.process_table import Process, read_processes
from stoker.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from stoker.engine.daemon.gpus.driver_monitor import DriverMonitor
    from stoker.engine.supervisor.messages import RunnerEvent
else:
    Protocol = object  # typing takes 2 ms to import

# How many jobs wait in the database at most; enough that no GPU idles while input is read.
_BACKLOG = 512
_HANDLED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGTSTP)
_ENDING_SIGNALS = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
_RELEASE_SECONDS = 0.5
_POLL_SECONDS = 0.02


class Source(Protocol):
    """Provides the jobs. If the descriptor is None, `read` never blocks."""

    @property
    def descriptor(self) -> int | None: ...
    @property
    def at_end(self) -> bool: ...
    @property
    def is_ready(self) -> bool:
        """Whether `read` may return jobs now; unless `at_end`, more may come later."""

    def read(self) -> list[JobSpec]: ...
    def submit(self, submission: Submission, specs: list[JobSpec]) -> None:
        """Record these jobs, and what belongs to them, e.g. their trials."""


class Foreground:
    def __init__(
        self,
        db: Database,
        source: Source,
        host: Host,
        gpus: Gpus,
        settings: Settings,
        listener: EventListener,
        log_for: Callable[[int, int], str | None],
        folder_for: Callable[[int], str],
        *,
        cancels_at_once: bool = False,
        on_signal: Callable[[int], bool] | None = None,
        on_events: Callable[[list[RunnerEvent]], None] | None = None,
        chunk: str | None = None,
    ) -> None:
        """`chunk`: the folder of a backend's chunk, if a worker runs its jobs."""
        self._db = db
        self._source = source
        self._tag_base = meta.tag_base(db)
        self._grace = settings.grace
        empty_logs = None if chunk is None else EmptyLogs(os.uname().nodename)
        self._parent = ForegroundJobs(self._tag_base, settings.log_limit, empty_logs)
        self._loop = Loop(
            db,
            self._parent,
            host,
            gpus,
            settings,
            SystemClock(),
            listener,
            next_attempt=attempts.next_attempt(db),
            log_for=log_for,
            folder_for=folder_for,
            chunk=chunk,
            ends_on_error=True,
        )
        self._listener = listener
        self._driver_monitor = _monitor_for(gpus, settings.gpu_file)
        self._submission = Submission(db, learns=False)
        self._unfinished = 0
        self.interrupts = 0
        self._signals: list[int] = []
        self._cancels_at_once = cancels_at_once  # for a single command: the first Ctrl-C cancels it
        self._on_own_signal = on_signal  # returns True if it handled the signal
        self._on_events = on_events  # called before the loop decides what to start next
        self._event_poll = EventPoll()

    def finished_one(self) -> None:
        self._unfinished -= 1

    @property
    def takes_work(self) -> bool:
        return self._loop.takes_work

    def drain(self) -> None:
        """Start no more jobs; running jobs finish."""
        self._loop.takes_work = False

    def pause_starts(self, seconds: float) -> None:
        """Start no job for a moment."""
        self._loop.pause_starts(seconds)

    @property
    def running(self) -> int:
        return len(self._loop.running)

    def stop(self, job: int, grace: float | None = None, reason: str = "user") -> bool:
        """Send SIGTERM to a running job, and SIGKILL after its grace period.

        Returns whether the job was running.
        """
        for attempt, live in self._loop.running.items():
            if live.id == job:
                self._parent.stop(attempt, reason, grace)
                return True
        return False

    def running_jobs(self) -> list[int]:
        return [job.id for job in self._loop.running.values()]

    def withdraw(self, job: int) -> bool:
        """Cancel a job that waits in the database of the run; False if it does not wait."""
        from stoker.engine.store.dependencies import cancel_waiting

        with self._db.transaction():
            is_withdrawn = cancel_waiting(self._db, job, "user", time.time())
        if is_withdrawn:
            self._unfinished -= 1
            self._loop.queue_changed()
        return is_withdrawn

    def devices_changed(self) -> None:
        """Decide again: a device may have become free."""
        self._loop.devices_changed()

    def pid_of(self, job: int) -> int | None:
        """The first process of a running job; it leads its own session and group."""
        for attempt, live in self._loop.running.items():
            if live.id == job:
                return self._parent.pid_of(attempt)
        return None

    def ignore(self, pid: int) -> None:
        """Declare that a child of this process is not a job."""
        self._parent.ignore((pid,))

    def work(self, before_wait: Callable[[], float | None]) -> None:
        """Run all jobs. `before_wait` returns when to call it again."""
        for number in _HANDLED_SIGNALS:
            if not _is_ignored(number):
                signal.signal(number, self._on_signal)
        try:
            while self._has_more():
                self.handle_signals()
                self._read()
                events = self._parent.events()[0]
                self._loop.receive(events)
                if events and self._on_events is not None:
                    self._on_events(events)
                    self.handle_signals()
                self._loop.tick()
                if self._driver_monitor is not None:
                    self._driver_monitor.observe(self._loop, self._listener, time.monotonic())
                    self._parent.ignore(self._driver_monitor.helpers())
                    self._loop.tick()
                if self._is_idle() and self._has_more():
                    self._wait(before_wait())
            self._release_leftovers()
        finally:
            self._parent.close()
            if self._driver_monitor is not None:
                self._driver_monitor.close()
            # Only the summary is left to print. Python restores the default action of SIGINT when
            # it exits, and another Ctrl-C would then replace our exit code.
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _is_idle(self) -> bool:
        """Whether there is nothing to do until the next event."""
        source = self._source
        has_jobs = source.descriptor is None and source.is_ready and self._takes_more
        return not self._parent.has_events and not self._signals and not has_jobs

    @property
    def _takes_more(self) -> bool:
        return self._loop.takes_work and self._unfinished < _BACKLOG

    def _has_more(self) -> bool:
        if self._loop.running or self._loop.has_unrecorded:
            return True
        if not self._loop.takes_work:
            return False
        return not self._source.at_end or self._unfinished > 0

    def _read(self) -> None:
        """Read more jobs when few are left; a pipe is read only when it is readable."""
        source = self._source
        while source.is_ready and self._takes_more:
            if source.descriptor is not None and not _readable(source.descriptor):
                break
            specs = source.read()
            if specs:
                source.submit(self._submission, specs)
                self._unfinished += len(specs)
                self._loop.queue_changed()

    def _wait(self, tick_at: float | None) -> None:
        self._event_poll.register(self._descriptors())
        due = (
            self._loop.next_wake(),
            self._parent.next_deadline(),
            tick_at,
            None if self._driver_monitor is None else self._driver_monitor.next_deadline(),
        )
        times = [at for at in due if at is not None]
        timeout = max(0.0, min(times) - time.monotonic()) if times else -1
        self._event_poll.wait(timeout)

    def _descriptors(self) -> set[int]:
        wanted = {self._parent.fileno()}
        if self._driver_monitor is not None:
            wanted |= self._driver_monitor.descriptors()
        source = self._source
        if source.descriptor is not None and not source.at_end and self._takes_more:
            wanted.add(source.descriptor)
        return wanted

    def _on_signal(self, number: int, frame: object) -> None:
        self._signals.append(number)  # handled between two ticks

    def handle_signals(self) -> None:
        """First Ctrl-C: start no more jobs. Second (or SIGTERM, SIGHUP): cancel. Third: kill."""
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGTSTP:
                self._suspend()
                continue
            if self._on_own_signal is not None and self._on_own_signal(number):
                continue
            self._loop.takes_work = False
            if number == signal.SIGUSR1:
                self._listener.message("draining: running jobs finish, no more are started")
                continue
            self.interrupts += 1
            if self._cancels_at_once or number in (signal.SIGTERM, signal.SIGHUP):
                self.interrupts = max(self.interrupts, 2)
            if self.interrupts == 1:
                if self._loop.running:
                    count = len(self._loop.running)
                    self._listener.message(f"finishing {count} running; Ctrl-C again cancels them")
                continue
            for attempt in list(self._loop.running):
                self._parent.stop(attempt, "user", None if self.interrupts == 2 else 0.0)

    def _suspend(self) -> None:
        """Ctrl-Z: suspend the jobs too. They have their own sessions, so the terminal does not."""
        seen: set[Process] = set()
        while running := set(self._processes()) - seen:
            seen |= running  # a process that is not stopped yet may start another
            for process in running:
                kill_processes.send(process, signal.SIGSTOP)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        # Continued by SIGCONT.
        signal.signal(signal.SIGTSTP, self._on_signal)
        for process in self._processes():
            kill_processes.send(process, signal.SIGCONT)
        self._loop.gpus.all_resumed()

    def _processes(self) -> list[Process]:
        return job_processes.all_processes(self._tag_base, root=os.getpid())

    def _release_leftovers(self) -> None:
        """Untag processes that jobs may leave behind; the cleanup process kills tagged ones."""
        # The usual case: only the cleanup process is left.
        if len(job_processes.children(os.getpid())) == 1:
            self._parent.dismiss_cleanup()
            return
        if not self.interrupts:
            _release(self._tag_base)
            self._parent.dismiss_cleanup()
            return
        kill_processes.terminate(self._processes())
        deadline = time.monotonic() + self._grace
        self._event_poll.register({self._parent.fileno()})
        while self._processes() and time.monotonic() < deadline:
            self._event_poll.wait(_POLL_SECONDS)
            self._parent.events()
            if not _ENDING_SIGNALS.isdisjoint(self._signals):
                return


def _monitor_for(gpus: Gpus, gpu_file: str | None) -> DriverMonitor | None:
    """None for GPUs that never change."""
    if not gpus.is_monitored:
        return None
    from stoker.engine.daemon.gpus.driver_monitor import DriverMonitor

    return DriverMonitor(gpus, gpu_file)


def _release(tag_base: int) -> None:
    """Replace the tags of this run by the limits of this process: the run then owns no process."""
    own = process_tags.own_limits()
    deadline = time.monotonic() + _RELEASE_SECONDS
    empty = 0  # empty passes in a row; a single pass may miss a process that is being started
    while empty < 2 and time.monotonic() < deadline:
        tagged = [
            process
            for process in read_processes().values()
            if (tag := process_tags.read_tag(process.pid)) is not None
            and process_tags.base_of(tag) == tag_base
        ]
        empty = 0 if tagged else empty + 1
        for process in tagged:
            process_tags.retag(process.pid, own)


def _is_ignored(number: int) -> bool:
    """Whether the parent process made us ignore it: `nohup`, or a shell with `&`."""
    may_be_ignored = number in (signal.SIGHUP, signal.SIGINT, signal.SIGTSTP)
    return may_be_ignored and signal.getsignal(number) == signal.SIG_IGN


def _readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def remove_store(folder: str) -> None:
    """Delete the database of the last run in this folder; its logs are overwritten later."""
    for name in ("queue.db", "queue.db-wal", "queue.db-shm"):
        try:
            os.unlink(os.path.join(folder, name))
        except FileNotFoundError:
            pass
