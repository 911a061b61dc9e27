"""Keeps a helper process alive for as long as it is needed."""

from __future__ import annotations

import os
import signal
import sys

from stoker.core.backoff import Backoff
from stoker.settings import Settings

_FIRST_PAUSE = 1.0
# A process that lived that long did not fail because it was started.
_STEADY_SECONDS = 60.0


class HelperProcess:
    """Starts it when there is something for it to do, and again when it dies over that.

    It ends by itself when there is nothing left to do. Its one argument is our PID and its stdin a
    pipe from us, so it can also tell when we are gone.
    """

    def __init__(self, module: str, what: str, settings: Settings) -> None:
        self._module = module
        self._what = what
        self._settings = settings
        self._pid = 0
        self._handle: int | None = None
        self._stdin: int | None = None
        self._backoff = Backoff(min(_FIRST_PAUSE, settings.retry_delay))
        self._started_at = 0.0
        self._is_wanted = False

    def is_needed(self) -> bool:
        """Whether there is something to do for it."""
        raise NotImplementedError

    @property
    def is_there(self) -> bool:
        return self._handle is not None

    def descriptors(self) -> list[int]:
        """Readable when it has ended."""
        return [] if self._handle is None else [self._handle]

    def next_deadline(self) -> float | None:
        return self._backoff.due_at if self._is_wanted and self._handle is None else None

    def look(self, now: float, something_changed: bool) -> str | None:
        """Called in every turn; a text when there is trouble to tell of."""
        was_there = self.is_there
        trouble = self._collect(now)
        if something_changed or (was_there and not self.is_there):  # one came as it left
            self._is_wanted = self.is_needed()
        if self._is_wanted and not self.is_there and self._backoff.is_due(now):
            trouble = self._start(now) or trouble
        return trouble

    def say(self, line: bytes) -> None:
        """Tell it something, or not if it does not listen: nobody waits for it."""
        if self._stdin is not None:
            try:
                os.write(self._stdin, b"\n" + line)  # the last one may have been cut short
            except (BlockingIOError, BrokenPipeError):
                pass

    def _start(self, now: float) -> str | None:
        command = [sys.executable, "-P", "-m", self._module, str(os.getpid())]
        env = dict(os.environ, STOKER_STATE_DIR=self._settings.state_dir)
        try:
            theirs, self._stdin = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self._stdin, False)
            try:
                self._pid = os.posix_spawn(
                    sys.executable, command, env, setsid=True,
                    setsigdef=[signal.SIGHUP, signal.SIGCHLD],
                    file_actions=[(os.POSIX_SPAWN_DUP2, theirs, 0)],
                )  # fmt: skip
            finally:
                os.close(theirs)
            self._handle = os.pidfd_open(self._pid)
            self._started_at = now
        except OSError as error:
            self._forget()
            return self._failed(now, f"cannot be started ({error.strerror})")
        return None

    def _collect(self, now: float) -> str | None:
        if self._handle is None:
            return None
        try:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:  # collected together with orphans of jobs
            pid, status = self._pid, 1 << 8
        if not pid:
            return None
        self._forget()
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
        return f"{self._what} {how}{times}; it is started again in {self._backoff.due_at - now:g} s"

    def _forget(self) -> None:
        for descriptor in (self._handle, self._stdin):
            if descriptor is not None:
                os.close(descriptor)
        self._handle = self._stdin = None

    def close(self) -> None:
        """It holds nothing, so it may go at any time."""
        if self._handle is not None:
            try:
                signal.pidfd_send_signal(self._handle, signal.SIGTERM)
            except ProcessLookupError:
                pass
            self._forget()
