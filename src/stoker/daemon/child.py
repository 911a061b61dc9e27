"""Keeps a helper process alive for as long as it is needed."""

from __future__ import annotations

import os
import signal
import sys

from stoker.settings import Settings

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


class Child:
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
        self._pause = _FIRST_PAUSE
        self._not_before = 0.0
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
        return self._not_before if self._is_wanted and self._handle is None else None

    def look(self, now: float, something_changed: bool) -> str | None:
        """Called in every turn; a text when there is trouble to tell of."""
        was_there = self.is_there
        trouble = self._collect(now)
        if something_changed or (was_there and not self.is_there):  # one came as it left
            self._is_wanted = self.is_needed()
        if self._is_wanted and not self.is_there and now >= self._not_before:
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
        except OSError as error:
            self._forget(now)
            return f"{self._what} cannot be started ({error.strerror}); it is tried again"
        return None

    def _collect(self, now: float) -> str | None:
        if self._handle is None:
            return None
        try:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:  # collected together with orphans of jobs
            pid, status = self._pid, 1
        if not pid:
            return None
        self._forget(now)
        if status == 0:
            self._pause, self._not_before = _FIRST_PAUSE, now
            return None
        return f"{self._what} died (status {status}); it is started again"

    def _forget(self, now: float) -> None:
        for descriptor in (self._handle, self._stdin):
            if descriptor is not None:
                os.close(descriptor)
        self._handle = self._stdin = None
        self._not_before = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def close(self) -> None:
        """It holds nothing, so it may go at any time."""
        if self._handle is not None:
            try:
                signal.pidfd_send_signal(self._handle, signal.SIGTERM)
            except ProcessLookupError:
                pass
            self._forget(0.0)
