"""The daemon: takes the daemon lock, opens the database, recovers, and runs the loop.

There is one daemon per user and host. Jobs are children of the runner, so they survive a crash of
the daemon at any instant.
"""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import sys
import time
from contextlib import suppress

from stoker import __version__
from stoker.boot import boot_id
from stoker.engine.daemon.clock import SystemClock
from stoker.engine.daemon.event_poll import EventPoll
from stoker.engine.daemon.gpus.driver_monitor import DriverMonitor, find_gpus
from stoker.engine.daemon.gpus.gpus import Gpus
from stoker.engine.daemon.gpus.monitored_gpus import MonitoredGpus
from stoker.engine.daemon.helper_process import DaemonHelper, DaemonParts, News
from stoker.engine.daemon.idle_check import IdleCheck
from stoker.engine.daemon.interfaces import EventListener, Host
from stoker.engine.daemon.loop import Loop
from stoker.engine.daemon.recovery import recover
from stoker.engine.daemon.start import DAEMON_MODULE
from stoker.engine.daemon.wake import WakeServer
from stoker.engine.model import Context, HostResources, Outcome
from stoker.engine.outcome.retry import Verdict
from stoker.engine.store import attempts, meta, named_devices
from stoker.engine.store.database import FILE_NAME, open_database
from stoker.engine.store.device_settings import load_devices
from stoker.engine.store.repair.checkpoints import Checkpoints, checkpoint
from stoker.engine.store.upgrades import migration_lock
from stoker.engine.supervisor import locks, process_tags
from stoker.engine.supervisor.host_size import host_resources
from stoker.engine.supervisor.journal import JournalBegun
from stoker.engine.supervisor.messages import AttemptStarted, Order, RunnerEvent
from stoker.engine.supervisor.orphans import Adoption, Orphans, ProcessHandles
from stoker.engine.supervisor.restart_backoff import RestartBackoff
from stoker.engine.supervisor.runner_client import RunnerClient
from stoker.engine.supervisor.subreaper import become_subreaper
from stoker.engine.supervisor.wire import note
from stoker.errors import Conflict, Error, Unavailable, Upgraded
from stoker.features import DAEMON_HELPERS, load
from stoker.settings import (
    Settings,
    check_filesystem,
    cpu_slots,
    load_settings,
    prepare_state_dir,
)

_CHECK_SECONDS = 30.0
_ERROR_PAUSE_SECONDS = 0.05
_RETRY_SECONDS = 1.0


def _inode_and_size(path: str) -> tuple[int | None, int]:
    try:
        info = os.stat(path)
    except OSError:
        return None, 0
    return info.st_ino, info.st_size


class Daemon(EventListener):
    # The command with which the runner restarts a daemon that was killed.
    restart = (sys.executable, "-P", "-m", DAEMON_MODULE)

    def __init__(self, settings: Settings) -> None:
        folder = settings.state_dir
        self._is_stopping = False
        self._catch_signals()
        self._settings = settings
        self._clock = SystemClock()
        self._db = open_database(folder, durable=False, is_owner=True)
        self._db.never_wait()
        self._database_inode = os.stat(os.path.join(folder, FILE_NAME)).st_ino
        self._check_at = 0.0  # when `_check_state_dir` and `_check_decisions` run next
        self._checkpoints = Checkpoints(folder)
        tag_base = meta.tag_base(self._db)
        gpus = self.find_gpus(tag_base)
        self._runner = RunnerClient(folder, tag_base, settings.log_limit, list(self.restart))
        self._handles = ProcessHandles()
        self._orphans = Orphans(folder, tag_base, self._handles)
        host = Host(cpu_slots(settings), boot_id(), resources=self.host_resources())
        if isinstance(gpus, MonitoredGpus):
            gpus.remember(load_devices(self._db))
        self._driver_monitor = DriverMonitor(gpus, settings.gpu_file)
        self._wake = WakeServer(folder)
        self._news = News(was_woken=True, has_events=True)  # for the helpers
        self._refreshes = 0  # of the loop, when the helpers got news last
        begun = [r.attempt for r in self._runner.journal() if isinstance(r, JournalBegun)]
        first = max(attempts.next_attempt(self._db), max(begun, default=0) + 1)
        self._loop = Loop(
            self._db, self, host, gpus, settings, self._clock, self, next_attempt=first
        )
        self._idle_check = IdleCheck(self._loop, self._clock)
        parts = DaemonParts(self._db, settings, self._clock, self._loop, self._driver_monitor)
        self._helpers: list[DaemonHelper] = [load(row)(parts) for row in DAEMON_HELPERS.values()]
        # The log exists as long as a process has the database open, so it is always this file.
        self._log_path = f"{os.path.join(folder, FILE_NAME)}-wal"
        self._log_inode, _ = _inode_and_size(self._log_path)
        self._last_message = ""
        self._restarts = RestartBackoff()  # of the runner
        self._restarts.started(time.monotonic())
        self._runner_problem: str | None = None
        self._recover_at: float | None = None  # when to recover the jobs of a dead runner

    def find_gpus(self, tag_base: int) -> Gpus:
        """The GPUs on which jobs may run; GPUPeasy's daemon overrides it."""
        if named_devices.read(self._db) is not None:
            raise Unavailable(
                "this queue defines its own devices; only the program that created it can run it"
            )
        return find_gpus(self._settings, tag_base)

    def host_resources(self) -> HostResources:
        """What jobs share besides GPUs; GPUPeasy's daemon overrides it."""
        return host_resources(self._settings)

    # -- main loop ---------------------------------------------------------------------------

    def work(self) -> None:
        """Recover, then run the loop until SIGTERM or SIGINT. Jobs keep running after that."""
        self._publish()
        live = [] if self._runner.is_fresh else self._runner.live_attempts()
        self._keep_handles(list(live))
        self._recover(live)
        event_poll = EventPoll()
        own = {
            self._wake.wake_socket.fileno(),
            self._wake.changes_socket.fileno(),
            self._signal_pipe,
        }
        while not self._is_stopping:
            try:
                self._poll_once(event_poll, own)
            except Upgraded:
                raise
            except (OSError, sqlite3.Error, Error) as error:
                # Such as a failing disk or no free file descriptors. Keep running, because time
                # limits still have to be enforced.
                self.message(f"error in the daemon; it continues: {error}")
                time.sleep(_ERROR_PAUSE_SECONDS)
        self._close()

    def _poll_once(self, event_poll: EventPoll, own: set[int]) -> None:
        others = {*self._orphans.handles(), *self._driver_monitor.descriptors()}
        others.update(*(helper.descriptors() for helper in self._helpers))
        if self._runner.is_connected:
            others.add(self._runner.fileno())
        event_poll.register(
            own | others, self._runner.fileno() if self._runner.has_backlog else None
        )
        for descriptor in event_poll.wait(self._timeout()):
            if descriptor == self._wake.wake_socket.fileno():
                self._stop_jobs(self._wake.drain())
                self._news = self._news._replace(was_woken=True)
            elif descriptor == self._wake.changes_socket.fileno():
                self._wake.accept(self.problem())
            elif descriptor == self._signal_pipe:
                os.read(self._signal_pipe, 4096)
        self._check_log()
        if time.monotonic() > self._check_at:
            self._check_state_dir()
            self._check_decisions()
        self._observe()
        self._loop.tick()
        if self._loop.gpus.is_monitored:  # the tick may need a new sample of the GPUs
            self._driver_monitor.observe(self._loop, self, time.monotonic())
            self._loop.tick()
        if self._runner.is_of_another_release and not self._loop.running:
            self._upgrade_runner()
        if self._wake.notify_at is not None:
            self._wake.notify(time.monotonic())
        now = time.monotonic()
        news = self._news._replace(was_read=self._loop.refreshes != self._refreshes)
        for helper in self._helpers:
            problem = helper.tick(now, news)
            if problem is not None:
                self._note(problem)
        self._refreshes, self._news = self._loop.refreshes, News()

    def _catch_signals(self) -> None:
        """Install signal handlers, and a self-pipe through which signals wake up epoll."""
        self._signal_pipe, end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(end, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._request_stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _request_stop(self, *_: object) -> None:
        self._is_stopping = True

    def _timeout(self) -> float:
        due = (
            self._loop.next_wake(),
            self._orphans.next_deadline(),
            self._wake.notify_at,
            self._driver_monitor.next_deadline(),
            self._restarts.due_at,
            self._recover_at,
            *(helper.next_deadline() for helper in self._helpers),
        )
        times = [self._check_at, *(at for at in due if at is not None)]
        return max(0.0, min(times) - time.monotonic())

    def _check_state_dir(self) -> None:
        """Stop if the state folder was deleted: clients cannot reach the daemon any more."""
        self._check_at = time.monotonic() + _CHECK_SECONDS
        path = os.path.join(self._settings.state_dir, FILE_NAME)
        try:
            is_ours = os.stat(path).st_ino == self._database_inode
        except (FileNotFoundError, NotADirectoryError):
            is_ours = False
        if not is_ours:
            self._note("the queue was deleted or replaced; the daemon exits")
            self._is_stopping = True

    def _check_log(self) -> None:
        """Start again if the write-ahead log was deleted or replaced, before anything is read.

        Clients write to the new log, and SQLite reads and writes the old one in this process: it
        would lose what they submit, and a checkpoint would overwrite it, also one at the exit. So
        this process is killed; the runner starts another one.
        """
        inode, size = _inode_and_size(self._log_path)
        if inode == self._log_inode:
            return
        if not os.path.exists(os.path.join(self._settings.state_dir, FILE_NAME)):
            return  # `_check_state_dir` reports it
        self._note(f"`{self._log_path}` was deleted or replaced; the daemon starts again")
        if not size:  # no client has written yet: save what only the deleted log has
            with suppress(sqlite3.Error):
                checkpoint(self._db)
        os.kill(os.getpid(), signal.SIGKILL)

    def _check_decisions(self) -> None:
        """Compare the loop's decision with that of a freshly loaded snapshot; they are the same.

        A difference is a defect in the loop's caches. It is logged and the caches are read again,
        so a job waits half a minute at most.
        """
        missed = self._idle_check.missed_starts()
        if missed:
            starts = ", ".join(f"job {one.job} on GPUs {list(one.devices)}" for one in missed)
            self._note(f"error: cached state was out of date and is read again; missed: {starts}")
            self._loop.queue_changed()

    def _observe(self) -> None:
        events, is_alive = self._runner.events()
        self._keep_handles(events)
        self._loop.receive(events)
        if events:
            self._news = self._news._replace(has_events=True)
        problem = self._runner.take_problem()
        if problem is not None:
            self._runner_problem = problem or None
            if problem:
                self.message(problem)
        if len(self._orphans):
            self._loop.receive(self._orphans.reap())
        now = time.monotonic()
        if not is_alive and self._runner.is_connected:
            self._lose_runner(now)
        if self._recover_at is not None and now >= self._recover_at:
            self._recover_without_runner(now)
        if self._restarts.is_due(now):
            self._restart_dead_runner(now)

    def _lose_runner(self, now: float) -> None:
        """The runner died: supervise its jobs from here, and start another one."""
        self._loop.takes_work = False
        self._loop.tick()
        self._runner.lose()
        self._recover_at = now
        self._restarts.died(now)
        pause = (self._restarts.due_at or now) - now
        when = f"in {pause:.0f} seconds" if pause else "now"
        self._note(f"the runner died; the daemon adopts its jobs and starts another one {when}")

    def _stop_jobs(self, requests: list[tuple[int, float | None]]) -> None:
        """Stop jobs for clients that cannot write the request to the database."""
        attempts = {job.id: attempt for attempt, job in self._loop.running.items()}
        for job, grace in requests:
            if job in attempts:
                self.stop(attempts[job], "user", grace)

    def _recover_without_runner(self, now: float) -> None:
        try:
            recover(self._loop, self._runner, self._orphans, [], self._clock.wall())
        except Upgraded:
            raise
        except (Error, OSError, sqlite3.Error) as error:
            self._recover_at = now + _RETRY_SECONDS
            self._runner_problem = f"cannot recover the jobs of the dead runner: {error}"
            self.message(self._runner_problem)
            self._orphans.adopt(  # so that time limits are enforced meanwhile
                Adoption(
                    attempt=attempt,
                    pid=None,
                    pid_started=None,
                    ends_by=job.ends_by,
                    grace=self._settings.grace,
                )
                for attempt, job in self._loop.running.items()
                if attempt not in self._orphans
            )
            return
        self._recover_at = None
        self._take_work()

    def _restart_dead_runner(self, now: float) -> None:
        self._restarts.tried(now)
        try:
            self._runner.replace()
        except (Error, OSError) as error:
            self._runner_problem = f"the runner cannot be started: {error}"
            self.message(self._runner_problem)
            return
        self._restarts.started(now)
        self._take_work()

    def _upgrade_runner(self) -> None:
        self._note("the runner is of another release and has no jobs; starting a new runner")
        try:
            self._runner.renew()
        except (Error, OSError):
            self._restarts.died(time.monotonic())
            self._loop.takes_work = False
            raise

    def _take_work(self) -> None:
        """Start jobs again once there is a runner and recovery has succeeded."""
        if self._runner.is_connected and self._recover_at is None:
            self._loop.takes_work = True
            self._loop.devices_changed()

    def problem(self) -> str | None:
        """Why no job can be started or recorded now, for `stoker why`; None if one can."""
        runner = self._runner_problem
        if runner is None and not self._runner.is_connected:
            runner = "the runner died; the daemon starts another one soon"
        return "; ".join(text for text in (self._loop.problem, runner) if text) or None

    def _keep_handles(self, events: list[RunnerEvent]) -> None:
        """Open a pidfd for each job, to get its exit code even if the runner is dead."""
        ended = {event.attempt for event in events if isinstance(event, Outcome)}
        for event in events:
            if isinstance(event, AttemptStarted) and event.attempt not in ended:
                self._handles.open(event)
        for attempt in ended:
            self._handles.close(attempt)

    def _recover(self, live: list[AttemptStarted]) -> None:
        while not self._is_stopping:
            try:
                recover(self._loop, self._runner, self._orphans, live, self._clock.wall())
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
                    python = f"Python {sys.version.split()[0]} at {sys.executable}"
                    meta.set_meta(self._db, "daemon_python", python)
                return
            except Upgraded:
                raise
            except Error as error:
                self.message(error.message)
                time.sleep(0.05)

    def _close(self) -> None:
        self._loop.tick()
        with suppress(sqlite3.Error):
            self._loop.jobs_resumed()  # no other daemon may follow that would continue them
        self._loop.tick()
        self._wake.close()
        self._checkpoints.close()
        self._driver_monitor.close()
        for helper in self._helpers:
            helper.close()
        self._runner.close()
        self._db.close()

    # -- the loop's parent: the runner, or for orphans this process ----------------------------

    def launch(self, order: Order, context: Context, lease: list[int]) -> None:
        self._runner.launch(order, context, lease)

    def stop(self, attempt: int, reason: str, grace: float | None) -> None:
        if attempt in self._orphans:
            self._orphans.stop(attempt, reason, grace)
        else:
            self._runner.stop(attempt, reason, grace)

    def pause(self, attempt: int, seconds: float) -> None:
        if attempt in self._orphans:
            self._orphans.pause(attempt, seconds)
        else:
            self._runner.pause(attempt, seconds)

    def resume(self, attempt: int) -> None:
        if attempt in self._orphans:
            self._orphans.resume(attempt)
        else:
            self._runner.resume(attempt)

    # -- the loop's listener -------------------------------------------------------------------

    def committed(self) -> None:
        self._runner.committed()
        self._checkpoints.request()
        self._wake.notify(time.monotonic())
        if self._checkpoints.error is not None:
            self.message(f"cannot sync the queue to disk: {self._checkpoints.error}")
            self._checkpoints.error = None

    def ordered(self, job: int, devices: tuple[int, ...]) -> None:
        for helper in self._helpers:
            helper.ordered(devices)

    def finished(self, job: int, outcome: Outcome, verdict: Verdict) -> None:
        self._news = self._news._replace(has_events=True)  # also by recovery and orphans
        if verdict.cause == "lost":
            self._note(f"job {job} was lost: it started, but its exit code is unknown")

    def trial_ended(self, job: int) -> None:
        for helper in self._helpers:
            helper.trial_ended(job)

    def message(self, text: str) -> None:
        if text != self._last_message:  # do not repeat it with every retry
            self._note(text)
            self._last_message = text

    def _note(self, text: str) -> None:
        note(text)


def run_daemon(settings: Settings, kind: type[Daemon] = Daemon) -> None:
    """Run the daemon in this process until SIGTERM. Raises Conflict if one is already running."""
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
        # Exit as after a crash: the runner then starts the daemon of the installed release.
        note(f"{error.message}; the daemon exits")
    os.close(lock)


def main(kind: type[Daemon] = Daemon) -> None:
    """The background process that `engine/daemon/start.py` starts. It belongs to no job."""
    process_tags.detach()
    try:
        run_daemon(load_settings(), kind)
    except Conflict:
        pass  # another daemon was started at the same time and took the lock
    except Error as error:
        raise SystemExit(f"error: {error.message}") from None
    except OSError as error:
        raise SystemExit(f"error: the daemon cannot start: {error}") from None


if __name__ == "__main__":
    main()
