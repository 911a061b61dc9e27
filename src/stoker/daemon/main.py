"""The daemon, in reading order: be the only one, open, recover, loop, close.

One per user and host. Jobs belong to the runner, so this process may end at any instant.
"""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import sys
import time

from stoker import __version__
from stoker.core.model import Context, Outcome
from stoker.core.outcome.retry import Verdict
from stoker.daemon.clock import SystemClock
from stoker.daemon.event_poll import EventPoll
from stoker.daemon.gpus.driver_monitor import DriverMonitor, find_cards
from stoker.daemon.gpus.fixed_gpus import FixedGpus
from stoker.daemon.gpus.monitored_gpus import MonitoredGpus
from stoker.daemon.helpers.sweep_driver import SweepDriverProcess
from stoker.daemon.helpers.usage_recorder import UsageRecorderProcess
from stoker.daemon.interfaces import EventListener, Host
from stoker.daemon.loop import Loop
from stoker.daemon.recovery import recover
from stoker.daemon.start import DAEMON_MODULE
from stoker.daemon.wake import WakeServer
from stoker.errors import Conflict, Error, Unavailable, Upgraded
from stoker.settings import (
    Settings,
    check_filesystem,
    cpu_slots,
    load_settings,
    prepare_state_dir,
)
from stoker.store import attempts, job_queries, meta, named_devices
from stoker.store.checkpoints import Checkpoints
from stoker.store.database import FILE_NAME, open_database
from stoker.store.upgrades import migration_lock
from stoker.supervisor import locks, process_tags
from stoker.supervisor.daemon_restarts import Restarts
from stoker.supervisor.journal import JournalBegun
from stoker.supervisor.messages import AttemptStarted, Order, RunnerEvent
from stoker.supervisor.orphans import Adoption, Orphans, ProcessHandles
from stoker.supervisor.runner import boot_id
from stoker.supervisor.runner_client import RunnerClient
from stoker.supervisor.subreaper import become_subreaper
from stoker.supervisor.wire import note

_LOOK_FOR_HOME_SECONDS = 30.0
_ERROR_PAUSE_SECONDS = 0.05
_RETRY_SECONDS = 1.0


class Daemon(EventListener):
    # How the runner brings a daemon back that was killed.
    restart = (sys.executable, "-P", "-m", DAEMON_MODULE)

    def __init__(self, settings: Settings) -> None:
        folder = settings.state_dir
        self._is_stopping = False
        self._catch_signals()
        self._settings = settings
        self._clock = SystemClock()
        self._db = open_database(folder, durable=False, is_owner=True)
        self._db.never_wait()
        self._home = os.stat(os.path.join(folder, FILE_NAME)).st_ino
        self._look_at = 0.0
        self._checkpoints = Checkpoints(folder)
        tag = meta.store_tag(self._db)
        cards = self.find_cards(tag)
        self._link = RunnerClient(folder, tag, settings.log_limit, list(self.restart))
        self._handles = ProcessHandles()
        self._orphans = Orphans(folder, tag, self._handles)
        host = Host(cpu_slots(settings), boot_id())
        if isinstance(cards, MonitoredGpus):
            cards.remember(job_queries.devices(self._db))
        self._lookout = DriverMonitor(cards, settings.gpu_file)
        self._wake = WakeServer(folder)
        self._mind = SweepDriverProcess(self._db, settings)
        self._tracing = UsageRecorderProcess(settings)
        begun = [r.attempt for r in self._link.journal() if isinstance(r, JournalBegun)]
        first = max(attempts.next_attempt(self._db), max(begun, default=0) + 1)
        self._loop = Loop(
            self._db, self, host, cards, settings, self._clock, self, next_attempt=first
        )
        self._last_trouble = ""
        self._restarts = Restarts()  # of the runner
        self._restarts.came(time.monotonic())
        self._runner_problem: str | None = None
        self._recover_at: float | None = None  # when to record what became of a dead runner's jobs

    def find_cards(self, tag: int) -> FixedGpus:
        """What jobs may run on: the cards of the host."""
        if named_devices.read(self._db) is not None:
            raise Unavailable("this queue has devices of its own; who made it has to serve it")
        return find_cards(self._settings, tag)

    # -- life --------------------------------------------------------------------------------

    def work(self) -> None:
        """Recover, then turn until told to stop. Jobs go on after that."""
        self._publish()
        living = [] if self._link.is_fresh else self._link.living()
        self._keep_handles(list(living))
        self._recover(living)
        self._mind.look(time.monotonic(), True)
        listening = EventPoll()
        own = {self._wake.pokes.fileno(), self._wake.news.fileno(), self._signal_pipe}
        while not self._is_stopping:
            try:
                self._tick(listening, own)
            except Upgraded:
                raise
            except (OSError, sqlite3.Error, Error) as error:
                # A failing disk, no descriptors left: jobs still need their time limits.
                self.message(f"the daemon had an error and goes on: {error}")
                time.sleep(_ERROR_PAUSE_SECONDS)
        self._close()

    def _tick(self, listening: EventPoll, own: set[int]) -> None:
        others = {*self._orphans.handles(), *self._lookout.descriptors()}
        others.update(self._mind.descriptors(), self._tracing.descriptors())
        if self._link.is_connected:
            others.add(self._link.fileno())
        was_poked = False
        listening.to(own | others, self._link.fileno() if self._link.has_backlog else None)
        for descriptor in listening.wait(self._timeout()):
            if descriptor == self._wake.pokes.fileno():
                self._stop_jobs(self._wake.drain())
                was_poked = True
            elif descriptor == self._wake.news.fileno():
                self._wake.accept(self.problem())
            elif descriptor == self._signal_pipe:
                os.read(self._signal_pipe, 4096)
        if time.monotonic() > self._look_at:
            self._look_for_home()
            self._check_decisions()
        self._observe()
        self._loop.tick()
        if self._loop.gpus.is_monitored:  # the turn may have asked for a look at the cards
            self._lookout.observe(self._loop, self, time.monotonic())
            self._loop.tick()
        if self._link.is_of_another_release and not self._loop.running:
            self._renew_runner()
        if self._wake.announce_at is not None:
            self._wake.announce(time.monotonic())
        now = time.monotonic()
        for trouble in (
            self._mind.look(now, was_poked),
            self._tracing.follow(self._loop, self._lookout.seen, now),
        ):
            if trouble is not None:
                self._note(trouble)

    def _catch_signals(self) -> None:
        self._signal_pipe, end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(end, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask_to_stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _ask_to_stop(self, *_: object) -> None:
        self._is_stopping = True

    def _timeout(self) -> float:
        due = (
            self._loop.next_wake(), self._orphans.next_deadline(), self._wake.announce_at,
            self._lookout.next_deadline(), self._mind.next_deadline(),
            self._tracing.next_deadline(), self._restarts.due_at, self._recover_at,
        )  # fmt: skip
        times = [self._look_at, *(at for at in due if at is not None)]
        return max(0.0, min(times) - time.monotonic())

    def _look_for_home(self) -> None:
        """A daemon whose state folder was deleted would work on files that nobody can see."""
        self._look_at = time.monotonic() + _LOOK_FOR_HOME_SECONDS
        path = os.path.join(self._settings.state_dir, FILE_NAME)
        try:
            is_ours = os.stat(path).st_ino == self._home
        except (FileNotFoundError, NotADirectoryError):
            is_ours = False
        if not is_ours:
            self._note("the queue was deleted or replaced under the daemon; leaving")
            self._is_stopping = True

    def _check_decisions(self) -> None:
        """Compare the loop's decision with that of a freshly loaded snapshot; they are the same.

        A difference is a defect in the loop's caches. It is logged and the caches are read again,
        so a job waits for half a minute at most and not for ever.
        """
        try:
            missed = self._loop.missed_starts()
        except sqlite3.Error:
            return  # the database is busy or the disk is full; the next check is soon
        if missed:
            starts = ", ".join(f"job {one.job} on GPUs {list(one.devices)}" for one in missed)
            self._note(f"error: cached state was out of date and is read again; missed: {starts}")
            self._loop.queue_changed()

    def _observe(self) -> None:
        facts, alive = self._link.events()
        self._keep_handles(facts)
        self._loop.receive(facts)
        trouble = self._link.take_trouble()
        if trouble is not None:
            self._runner_problem = trouble or None
            if trouble:
                self.message(trouble)
        if len(self._orphans):
            self._loop.receive(self._orphans.reap())
        now = time.monotonic()
        if not alive and self._link.is_connected:
            self._lose_runner(now)
        if self._recover_at is not None and now >= self._recover_at:
            self._recover_without_runner(now)
        if self._restarts.is_due(now):
            self._replace_runner(now)

    def _lose_runner(self, now: float) -> None:
        """The runner died: supervise its jobs from here, and start another one."""
        self._loop.takes_work = False
        self._loop.tick()
        self._link.lose()
        self._recover_at = now
        self._restarts.left(now)
        pause = (self._restarts.due_at or now) - now
        when = f"in {pause:.0f} seconds" if pause else "now"
        self._note(f"the runner died; the daemon adopts its jobs and starts another one {when}")

    def _stop_jobs(self, wanted: list[tuple[int, float | None]]) -> None:
        """Stop jobs for clients that cannot write this into the queue."""
        attempts = {job.id: attempt for attempt, job in self._loop.running.items()}
        for job, grace in wanted:
            if job in attempts:
                self.stop(attempts[job], "user", grace)

    def _recover_without_runner(self, now: float) -> None:
        try:
            recover(self._loop, self._link, self._orphans, [], self._clock.wall())
        except Upgraded:
            raise
        except (Error, OSError, sqlite3.Error) as error:
            self._recover_at = now + _RETRY_SECONDS
            self._runner_problem = f"cannot record what became of the runner's jobs: {error}"
            self.message(self._runner_problem)
            self._orphans.adopt(  # time limits hold meanwhile
                Adoption(attempt, None, None, job.ends_by, self._settings.grace)
                for attempt, job in self._loop.running.items()
                if attempt not in self._orphans
            )
            return
        self._recover_at = None
        self._take_work()

    def _replace_runner(self, now: float) -> None:
        self._restarts.tried(now)
        try:
            self._link.replace()
        except (Error, OSError) as error:
            self._runner_problem = f"the runner cannot be started: {error}"
            self.message(self._runner_problem)
            return
        self._restarts.came(now)
        self._take_work()

    def _renew_runner(self) -> None:
        self._note("the runner is of another release and has no jobs; starting a new one")
        try:
            self._link.renew()
        except (Error, OSError):
            self._restarts.left(time.monotonic())
            self._loop.takes_work = False
            raise

    def _take_work(self) -> None:
        """Start jobs again once there is a runner and the records are in order."""
        if self._link.is_connected and self._recover_at is None:
            self._loop.takes_work = True
            self._loop.devices_changed()

    def problem(self) -> str | None:
        """Why nothing can be started or recorded now, for `stoker why` and the like."""
        runner = self._runner_problem
        if runner is None and not self._link.is_connected:
            runner = "the runner died; another one is started soon"
        return "; ".join(text for text in (self._loop.problem, runner) if text) or None

    def _keep_handles(self, facts: list[RunnerEvent]) -> None:
        """So that exit codes are known of jobs that end while the runner is dead."""
        ended = {fact.attempt for fact in facts if isinstance(fact, Outcome)}
        for fact in facts:
            if isinstance(fact, AttemptStarted) and fact.attempt not in ended:
                self._handles.open(fact)
        for attempt in ended:
            self._handles.close(attempt)

    def _recover(self, living: list[AttemptStarted]) -> None:
        while not self._is_stopping:
            try:
                recover(self._loop, self._link, self._orphans, living, self._clock.wall())
                return
            except Upgraded:
                raise
            except (Error, OSError, sqlite3.Error) as error:
                self.message(str(error))
                time.sleep(0.05)

    def _publish(self) -> None:
        while not self._is_stopping:
            try:
                with self._db.transaction():
                    meta.set_meta(self._db, "daemon_version", __version__)
                return
            except Upgraded:
                raise
            except Error as error:
                self.message(error.message)
                time.sleep(0.05)

    def _close(self) -> None:
        self._loop.tick()
        self._wake.close()
        self._checkpoints.close()
        self._lookout.close()
        self._mind.close()
        self._tracing.close()
        self._link.close()
        self._db.close()

    # -- the loop's parent: the runner, or for orphans this process ----------------------------

    def launch(self, order: Order, context: Context, lease: list[int]) -> None:
        self._link.launch(order, context, lease)

    def stop(self, attempt: int, reason: str, grace: float | None) -> None:
        if attempt in self._orphans:
            self._orphans.stop(attempt, reason, self._settings.grace if grace is None else grace)
        else:
            self._link.stop(attempt, reason, grace)

    # -- the loop's listener -------------------------------------------------------------------

    def committed(self) -> None:
        self._link.committed()
        self._checkpoints.request()
        self._wake.announce(time.monotonic())
        if self._checkpoints.trouble is not None:
            self.message(f"cannot sync the queue to disk: {self._checkpoints.trouble}")
            self._checkpoints.trouble = None

    def started(self, job: int, devices: tuple[int, ...]) -> None:
        pass

    def finished(self, job: int, outcome: Outcome, verdict: Verdict) -> None:
        if verdict.cause == "lost":
            self._note(f"job {job} was lost: it began, and nobody saw how it ended")

    def message(self, text: str) -> None:
        if text != self._last_trouble:  # once, not with every retry
            self._note(text)
            self._last_trouble = text

    def _note(self, text: str) -> None:
        note(text)


def run_daemon(settings: Settings, kind: type[Daemon] = Daemon) -> None:
    """Be the daemon, in this process, until SIGTERM."""
    prepare_state_dir(settings)
    check_filesystem(settings)
    os.umask(0o077)
    if process_tags.read_tag(os.getpid()) is None:
        process_tags.detach()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4096 <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    with migration_lock(settings.state_dir):
        lock = locks.take(settings.state_dir, locks.DAEMON_LOCK)
        daemon = kind(settings)
    become_subreaper()
    try:
        daemon.work()
    except Upgraded as error:
        # Leave as a crash would: the runner starts a daemon from the files that are there now.
        note(f"{error.message}; leaving")
    os.close(lock)


def main(kind: type[Daemon] = Daemon) -> None:
    """The background process that `daemon/start.py` starts, which is part of no job."""
    process_tags.detach()
    try:
        run_daemon(load_settings(), kind)
    except Conflict:
        pass  # two were started at once, and the other one won
    except Error as error:
        raise SystemExit(f"error: {error.message}") from None
    except OSError as error:
        raise SystemExit(f"error: the daemon cannot start: {error}") from None


if __name__ == "__main__":
    main()
