"""The same loop in the foreground: an own store, jobs as children, no daemon.

Jobs come from a source as long as it has any (a pipe that never ends is fine); only a few wait in
the store at a time. Ends when the source and the jobs have ended. Processes that a job may leave
behind (`keep_children`) outlive a run that comes to its end by itself; when it is interrupted or
killed, they end with it. Ctrl-Z stops the jobs with the run, `fg` lets them go on.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable

from stoker.core.model import JobSpec
from stoker.daemon.clock import SystemClock
from stoker.daemon.event_poll import EventPoll
from stoker.daemon.gpus.fixed_gpus import FixedGpus
from stoker.daemon.interfaces import EventListener, Host
from stoker.daemon.loop import Loop
from stoker.settings import Settings
from stoker.store import attempts, meta
from stoker.store.database import Database
from stoker.store.submit import Submission
from stoker.supervisor import job_processes, kill_processes, process_tags
from stoker.supervisor.foreground_jobs import ForegroundJobs
from stoker.supervisor.process_table import Process, read_processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from stoker.daemon.gpus.driver_monitor import DriverMonitor
else:
    Protocol = object  # typing takes 2 ms to import

# Jobs that wait in the store while more can be read; enough that no slot ever waits for input.
_BACKLOG = 512
# What a kill -9 of the run may cost in records; --resume then runs those jobs again.
_COMMIT_SECONDS = 0.05
_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGTSTP)
_ENDING = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
_RELEASE_SECONDS = 0.5
_LOOK_SECONDS = 0.02


class Source(Protocol):
    """Where jobs come from. A descriptor of None means that `read` never blocks."""

    @property
    def descriptor(self) -> int | None: ...
    @property
    def at_end(self) -> bool: ...
    @property
    def is_ready(self) -> bool:
        """Whether it may have jobs now; one that is not at its end may have more later."""

    def read(self) -> list[JobSpec]: ...
    def submit(self, submission: Submission, specs: list[JobSpec]) -> None:
        """Write them down, with whatever belongs to them."""


class Foreground:
    def __init__(
        self,
        db: Database,
        source: Source,
        host: Host,
        cards: FixedGpus,
        settings: Settings,
        listener: EventListener,
        log_for: Callable[[int, int], str | None],
        folder_for: Callable[[int], str],
        *,
        cancels_at_once: bool = False,
        on_signal: Callable[[int], bool] | None = None,
    ) -> None:
        self._db = db
        self._source = source
        self._tag_base = meta.store_tag(db)
        self._grace = settings.grace
        self._parent = ForegroundJobs(self._tag_base, settings.log_limit)
        self._loop = Loop(
            db, self._parent, host, cards, settings, SystemClock(), listener,
            next_attempt=attempts.next_attempt(db), log_for=log_for, folder_for=folder_for,
            commit_seconds=_COMMIT_SECONDS,
        )  # fmt: skip
        self._listener = listener
        self._lookout = _lookout(cards, settings.gpu_file)
        self._submission = Submission(db, learns=False)
        self._unfinished = 0
        self.interrupts = 0
        self._signals: list[int] = []
        self._cancels_at_once = cancels_at_once  # one command: the first Ctrl-C is meant for it
        self._on_own_signal = on_signal  # True: it has been dealt with
        self._listening = EventPoll()

    def finished_one(self) -> None:
        self._unfinished -= 1

    @property
    def takes_work(self) -> bool:
        return self._loop.takes_work

    def drain(self) -> None:
        """Let running jobs finish and start no more."""
        self._loop.takes_work = False

    @property
    def running(self) -> int:
        return len(self._loop.running)

    def stop(self, job: int, grace: float | None = None) -> None:
        """Ask a running job to end, and kill it when its grace is over."""
        for attempt, live in self._loop.running.items():
            if live.id == job:
                self._parent.stop(attempt, "user", grace)

    def look_again(self) -> None:
        """The devices changed."""
        self._loop.devices_changed()

    def pid_of(self, job: int) -> int | None:
        """The first process of a running job; it leads its own session and group."""
        for attempt, live in self._loop.running.items():
            if live.id == job:
                return self._parent.pid_of(attempt)
        return None

    def ignore(self, pid: int) -> None:
        """A child of this process that is no job."""
        self._parent.ignore((pid,))

    def work(self, tick: Callable[[], float | None]) -> None:
        """Run everything. `tick` is called now and then and says when it wants to be again."""
        for number in _HEARD:
            if not _is_left_out(number):
                signal.signal(number, self._on_signal)
        try:
            while self._has_more():
                self._obey_signals()
                self._read()
                self._loop.receive(self._parent.events()[0])
                self._loop.tick()
                if self._lookout is not None:
                    self._lookout.observe(self._loop, self._listener, time.monotonic())
                    self._parent.ignore(self._lookout.helpers())
                    self._loop.tick()
                if self._is_idle() and self._has_more():
                    self._wait(tick())
            self._part()
        finally:
            self._loop.commit_now()
            self._parent.close()
            if self._lookout is not None:
                self._lookout.close()
            # What is left is to say how it went. Python gives SIGINT back to the kernel while it
            # ends, and one Ctrl-C too many would then end us by that signal, not with our code.
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _is_idle(self) -> bool:
        """Whether there is nothing to do before something happens."""
        source = self._source
        has_jobs = source.descriptor is None and source.is_ready and self._takes_more
        return not self._parent.has_facts and not self._signals and not has_jobs

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
        """Take more jobs when few are left; a pipe is read only when it has something."""
        source = self._source
        while source.is_ready and self._takes_more:
            if source.descriptor is not None and not _readable(source.descriptor):
                break
            specs = source.read()
            if specs:
                self._loop.commit_now()
                source.submit(self._submission, specs)
                self._unfinished += len(specs)
                self._loop.queue_changed()

    def _wait(self, tick_at: float | None) -> None:
        self._listening.to(self._descriptors())
        due = (
            self._loop.next_wake(), self._parent.next_deadline(), tick_at,
            None if self._lookout is None else self._lookout.next_deadline(),
        )  # fmt: skip
        times = [at for at in due if at is not None]
        timeout = max(0.0, min(times) - time.monotonic()) if times else -1
        self._listening.wait(timeout)

    def _descriptors(self) -> set[int]:
        wanted = {self._parent.fileno()}
        if self._lookout is not None:
            wanted |= self._lookout.descriptors()
        source = self._source
        if source.descriptor is not None and not source.at_end and self._takes_more:
            wanted.add(source.descriptor)
        return wanted

    def _on_signal(self, number: int, frame: object) -> None:
        self._signals.append(number)  # acted upon between two turns, never inside one

    def _obey_signals(self) -> None:
        """Once: take no more work. Twice (or SIGTERM, SIGHUP): cancel. Again: kill."""
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGTSTP:
                self._stop_here()
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

    def _stop_here(self) -> None:
        """Ctrl-Z. Jobs have sessions of their own, which the terminal does not reach."""
        seen: set[Process] = set()
        while running := set(self._processes()) - seen:
            seen |= running  # a process that is not stopped yet may start another
            for process in running:
                kill_processes.send(process, signal.SIGSTOP)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        # Somebody has continued us.
        signal.signal(signal.SIGTSTP, self._on_signal)
        for process in self._processes():
            kill_processes.send(process, signal.SIGCONT)

    def _processes(self) -> list[Process]:
        return job_processes.all_processes(self._tag_base, root=os.getpid())

    def _part(self) -> None:
        """Release what jobs were allowed to leave behind; the keeper ends what has our tag."""
        if len(job_processes.children(os.getpid())) == 1:  # only the keeper is left, as usual
            self._parent.dismiss_keeper()
            return
        if not self.interrupts:
            _release(self._tag_base)
            self._parent.dismiss_keeper()
            return
        kill_processes.ask_to_end(self._processes())
        give_up = time.monotonic() + self._grace
        self._listening.to({self._parent.fileno()})
        while self._processes() and time.monotonic() < give_up:
            self._listening.wait(_LOOK_SECONDS)
            self._parent.events()
            if not _ENDING.isdisjoint(self._signals):
                return


def _lookout(cards: FixedGpus, gpu_file: str | None) -> DriverMonitor | None:
    """None for cards that never change: there is nothing to look out for."""
    if not cards.is_monitored:
        return None
    from stoker.daemon.gpus.driver_monitor import DriverMonitor

    return DriverMonitor(cards, gpu_file)


def _release(tag_base: int) -> None:
    """Replace this run's tags by its own: what is left is no longer part of the run."""
    own = process_tags.own_limits()
    give_up = time.monotonic() + _RELEASE_SECONDS
    empty = 0  # passes in a row: one may miss a process that is just being started
    while empty < 2 and time.monotonic() < give_up:
        tagged = [
            process for process in read_processes().values()
            if (tag := process_tags.read_tag(process.pid)) is not None
            and process_tags.base_of(tag) == tag_base
        ]  # fmt: skip
        empty = 0 if tagged else empty + 1
        for process in tagged:
            process_tags.retag(process.pid, own)


def _is_left_out(number: int) -> bool:
    """Whether who started us wants us not to hear it: `nohup`, or a shell that put us behind."""
    can_be = number in (signal.SIGHUP, signal.SIGINT, signal.SIGTSTP)
    return can_be and signal.getsignal(number) == signal.SIG_IGN


def _readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def remove_store(folder: str) -> None:
    """Begin anew: the records of the last run in this folder go, logs are overwritten."""
    for name in ("queue.db", "queue.db-wal", "queue.db-shm"):
        try:
            os.unlink(os.path.join(folder, name))
        except FileNotFoundError:
            pass
