"""Helper processes of features: the daemon starts and restarts each while it is needed."""

from __future__ import annotations

import os
import signal
import sys

from stoker.engine.backoff import Backoff
from stoker.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.engine.daemon.gpus.driver_monitor import DriverMonitor
    from stoker.engine.daemon.interfaces import Clock
    from stoker.engine.daemon.loop import Loop
    from stoker.engine.store.database import Database
    from stoker.settings import Settings

_FIRST_PAUSE = 1.0
# A process that ran for this long did not fail at start-up, so the backoff is reset.
_STEADY_SECONDS = 60.0


class DaemonParts(Record):
    """The parts of the daemon that helpers read."""

    db: Database
    settings: Settings
    clock: Clock
    loop: Loop
    driver_monitor: DriverMonitor


class News(Record):
    """What happened since the last tick. In the first tick, anything may have."""

    was_woken: bool = False  # by a client
    was_read: bool = False  # the queue, because another process changed it
    has_events: bool = False  # jobs started or ended


class DaemonHelper:
    """What the daemon calls. `DAEMON_HELPERS` of stoker.features has the classes.

    They are made with `DaemonParts`.
    """

    def descriptors(self) -> list[int]:
        """What wakes up the daemon."""
        raise NotImplementedError

    def next_deadline(self) -> float | None:
        """When a tick is due even without an event (monotonic)."""
        raise NotImplementedError

    def tick(self, now: float, news: News) -> str | None:
        """Start the process if necessary; called in every tick. Returns an error, or None."""
        raise NotImplementedError

    def ordered(self, devices: tuple[int, ...]) -> None:
        """A job starts on these devices."""

    def trial_ended(self, job: int) -> None:
        """An attempt of a sweep's trial has ended."""

    def close(self) -> None:
        """The daemon exits."""
        raise NotImplementedError


class HelperProcess(DaemonHelper):
    """Starts the process when it is needed, and again, with a backoff, when it fails.

    The process exits when it has nothing left to do. Its first argument is our PID and its stdin a
    pipe from us, so it also notices when we exit.
    """

    def __init__(
        self, module: str, what: str, settings: Settings, arguments: tuple[str, ...] = ()
    ) -> None:
        self._module = module
        self._arguments = arguments
        self._what = what
        self._settings = settings
        self._pid = 0
        self._handle: int | None = None
        self._stdin: int | None = None
        self._backoff = Backoff(min(_FIRST_PAUSE, settings.retry_delay))
        self._started_at = 0.0
        self._is_wanted = False

    def is_needed(self) -> bool:
        """Whether the process has something to do."""
        raise NotImplementedError

    @property
    def is_running(self) -> bool:
        return self._handle is not None

    def descriptors(self) -> list[int]:
        """The pidfd of the process, readable when it has exited."""
        return [] if self._handle is None else [self._handle]

    def next_deadline(self) -> float | None:
        return self._backoff.due_at if self._is_wanted and self._handle is None else None

    def check(self, now: float, has_changed: bool) -> str | None:
        """Start the process if necessary. Returns an error, or None.

        `has_changed`: it may have got, or lost, something to do.
        """
        was_running = self.is_running
        error = self._reap(now)
        # After an exit, check again: work may have arrived while it was exiting.
        if has_changed or (was_running and not self.is_running):
            self._is_wanted = self.is_needed()
        if self._is_wanted and not self.is_running and self._backoff.is_due(now):
            error = self._start(now) or error
        return error

    def send(self, line: bytes) -> bool:
        """Write a line to its stdin; False if the pipe is full or closed.

        Lines of less than 4 KiB are written completely or not at all.
        """
        if self._stdin is None:
            return False
        try:
            os.write(self._stdin, b"\n" + line)  # end a previous line that was cut short
        except (BlockingIOError, BrokenPipeError):
            return False
        return True

    def _start(self, now: float) -> str | None:
        command = [sys.executable, "-P", "-m", self._module, str(os.getpid()), *self._arguments]
        env = dict(os.environ, STOKER_STATE_DIR=self._settings.state_dir)
        try:
            child_end, self._stdin = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self._stdin, False)
            try:
                self._pid = os.posix_spawn(
                    sys.executable,
                    command,
                    env,
                    setsid=True,
                    setsigdef=[signal.SIGHUP, signal.SIGCHLD],
                    file_actions=[(os.POSIX_SPAWN_DUP2, child_end, 0)],
                )
            finally:
                os.close(child_end)
            self._handle = os.pidfd_open(self._pid)
            self._started_at = now
        except OSError as error:
            self._close_descriptors()
            return self._failed(now, f"cannot be started ({error.strerror})")
        return None

    def _reap(self, now: float) -> str | None:
        if self._handle is None:
            return None
        try:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:  # already reaped together with orphans of jobs
            pid, status = self._pid, 1 << 8
        if not pid:
            return None
        self._close_descriptors()
        if status == 0 or now - self._started_at >= _STEADY_SECONDS:
            self._backoff.succeeded()
        if status == 0:
            return None
        code = os.waitstatus_to_exitcode(status)
        how = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
        return self._failed(now, how)

    def _failed(self, now: float, how: str) -> str:
        self._backoff.failed(now)
        count = self._backoff.failures
        times = f" {count} times in a row" if count > 1 else ""
        return f"{self._what} {how}{times}; restarting it in {self._backoff.due_at - now:g} s"

    def _close_descriptors(self) -> None:
        for descriptor in (self._handle, self._stdin):
            if descriptor is not None:
                os.close(descriptor)
        self._handle = self._stdin = None

    def close(self) -> None:
        """End the process; it has no state that could be lost."""
        if self._handle is not None:
            try:
                signal.pidfd_send_signal(self._handle, signal.SIGTERM)
            except ProcessLookupError:
                pass
            self._close_descriptors()
