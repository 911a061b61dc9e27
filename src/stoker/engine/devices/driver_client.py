"""Client of the driver process: starts it, reads its samples, and replaces it if the driver hangs.

Nothing here blocks. A process that hangs in the driver may not even die of SIGKILL, so it is killed
and replaced without waiting, and reaped later if it dies.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Mapping

from stoker.engine.devices.driver import driver_of_host
from stoker.engine.devices.driver_process import ACTIVE_SECONDS, IDLE_SECONDS
from stoker.engine.devices.sample_lines import decode
from stoker.engine.gpus.sample import Sample

_MAX_WAIT_SECONDS = 30.0
_SETTLED_SECONDS = 60.0
_MAX_STUCK = 3
_ENDED = "the driver process exited unexpectedly"


class DriverClient:
    """A driver process that is restarted whenever it exits or hangs.

    `patience` is how late a sample may be, in seconds. The first one may take `start_patience`: a
    driver that no other program keeps awake needs seconds for each GPU.
    """

    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        patience: float = 10.0,
        start_patience: float = 30.0,
    ) -> None:
        self._env = env
        self._patience = patience
        self._start_patience = start_patience
        self._active = False
        self._process: _DriverProcess | None = None
        self._ended: list[_DriverProcess] = []
        self._unread: list[Sample] = []
        self._failures = 0
        self._restart_at: float | None = None
        self._started_at = 0.0
        self._received_at: float | None = None
        self._requested_at: float | None = None
        # Processes are replaced, but callers can keep polling this one descriptor.
        self._poll = select.epoll()
        self._start(time.monotonic())

    def fileno(self) -> int:
        """Return a descriptor that is readable when `read` has samples."""
        return self._poll.fileno()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def ask(self, *, with_utilization: bool = False) -> None:
        """Request a new sample now, before the next regular one.

        `with_utilization`: with utilization and power that are less than half a second old.
        """
        if self._requested_at is None:
            self._requested_at = time.monotonic()
        self._send(b"un" if with_utilization else b"n")

    def set_active(self, active: bool) -> None:
        """Set whether to sample at the active rate."""
        if active != self._active:
            self._active = active
            self._send(b"a" if active else b"i")

    def read(self) -> list[Sample]:
        """Return the samples that have arrived."""
        if self._process is not None:
            lines, alive = self._process.receive()
            self._unread += self._decoded(lines)
            if not alive:
                self._schedule_restart(_ENDED, time.monotonic())
        samples, self._unread = self._unread, []
        return samples

    def next_deadline(self) -> float | None:
        """Return when to call `check` (monotonic), or None."""
        if self._process is None:
            return self._restart_at
        if self._received_at is None:
            return self._started_at + self._start_patience
        interval = ACTIVE_SECONDS if self._active else IDLE_SECONDS
        deadline = self._received_at + interval + self._patience
        if self._requested_at is None:
            return deadline
        return min(deadline, max(self._requested_at, self._received_at) + self._patience)

    def check(self, now: float) -> list[Sample]:
        """Replace a process that hangs or exited; returns samples like `read`."""
        samples = self.read()  # first, because this process may have been suspended for long
        self._ended = [process for process in self._ended if not process.is_reaped()]
        deadline = self.next_deadline()
        if deadline is not None and now >= deadline:
            if self._process is not None:
                self._schedule_restart(_no_answer(), now)
            else:
                self._start(now)
        samples, self._unread = samples + self._unread, []
        return samples

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._ended.append(self._process)
            self._process = None
        for process in self._ended:
            if not process.is_reaped():
                process.close()
        self._ended = []
        self._restart_at = None
        self._poll.close()

    # -- the driver process ---------------------------------------------------------------------

    def _start(self, now: float) -> None:
        self._restart_at = None
        self._started_at = now
        self._received_at = self._requested_at = None
        if len(self._ended) >= _MAX_STUCK:  # further processes would hang as well
            self._restart_at = now + _MAX_WAIT_SECONDS
            return
        try:
            self._process = _DriverProcess(self._env)
        except OSError as error:
            self._schedule_restart(f"the driver process cannot be started ({error.strerror})", now)
            return
        self._poll.register(self._process.answers, select.EPOLLIN)
        if self._active:
            self._send(b"a")

    def _send(self, request: bytes) -> None:
        if self._process is not None:
            self._process.send(request)

    def _decoded(self, lines: list[bytes]) -> list[Sample]:
        samples = _samples(lines)
        if samples:
            self._received_at = time.monotonic()
            if self._requested_at is not None and samples[-1].at >= self._requested_at:
                self._requested_at = None
        return samples

    def _schedule_restart(self, error: str, now: float) -> None:
        if self._process is not None:
            self._poll.unregister(self._process.answers)
            self._process.kill()
            self._ended.append(self._process)
            self._process = None
        if now - self._started_at > _SETTLED_SECONDS:
            self._failures = 0
        wait = min(2.0**self._failures, _MAX_WAIT_SECONDS)
        self._failures += 1
        self._restart_at = now + wait
        self._unread.append(Sample(now, None, f"{error}; retrying in {wait:.0f} s"))


def sample_once(timeout: float = 5.0, env: Mapping[str, str] | None = None) -> Sample:
    """Return one sample for a short-lived command, within `timeout` even if the driver hangs."""
    deadline = time.monotonic() + timeout
    try:
        process = _DriverProcess(env, "--once")
    except OSError as error:
        text = f"the driver process cannot be started ({error.strerror})"
        return Sample(time.monotonic(), None, text)
    try:
        while True:
            lines, alive = process.receive()
            samples = _samples(lines)
            if samples:
                return samples[0]
            left = deadline - time.monotonic()
            if not alive or left <= 0:
                return Sample(time.monotonic(), None, _no_answer() if alive else _ENDED)
            _wait_for(process.answers, left)
    finally:
        process.kill()
        _wait_for(process.handle, 0.1)
        if not process.is_reaped():
            process.close()


class _DriverProcess:
    """One driver process. It has its own session, so Ctrl-C does not reach it."""

    def __init__(self, env: Mapping[str, str] | None, *options: str) -> None:
        # Without -P it would import from the current folder, which may be that of any job.
        argv = [
            sys.executable,
            "-P",
            "-m",
            "stoker.engine.devices.driver_process",
            *options,
        ]
        ours: list[int] = []
        theirs: list[int] = []
        try:
            for kept, given in ((1, 0), (0, 1)):
                ends = os.pipe2(os.O_CLOEXEC)
                ours.append(ends[kept])
                theirs.append(ends[given])
            self.pid = os.posix_spawn(
                sys.executable,
                argv,
                os.environ if env is None else env,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs[0], 0),
                    (os.POSIX_SPAWN_DUP2, theirs[1], 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setsid=True,
            )
            # A pidfd instead of a PID: if this process reaps all its children, the PID may soon
            # belong to a job.
            self.handle = os.pidfd_open(self.pid)
        except OSError:
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._requests, self.answers = ours
        os.set_blocking(self._requests, False)
        os.set_blocking(self.answers, False)
        self._incoming = b""

    def send(self, request: bytes) -> None:
        try:
            os.write(self._requests, request)
        except (BlockingIOError, BrokenPipeError):
            pass  # it hangs or exited: the deadline or the end of its output shows which

    def receive(self) -> tuple[list[bytes], bool]:
        """Return the lines received, and whether more can come."""
        alive = True
        try:
            while data := os.read(self.answers, 1 << 16):
                self._incoming += data
            alive = False
        except BlockingIOError:
            pass
        *lines, self._incoming = self._incoming.split(b"\n")
        return lines, alive

    def kill(self) -> None:
        """Kill the process without waiting for its end."""
        os.close(self._requests)
        os.close(self.answers)
        try:
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def is_reaped(self) -> bool:
        try:
            if os.waitid(os.P_PIDFD, self.handle, os.WEXITED | os.WNOHANG) is None:
                return False
        except OSError:
            pass  # already reaped elsewhere in this process
        self.close()
        return True

    def close(self) -> None:
        os.close(self.handle)


def _no_answer() -> str:
    return f"the {driver_of_host().vendor} driver does not answer"


def _samples(lines: list[bytes]) -> list[Sample]:
    samples = []
    for line in lines:
        try:
            samples.append(decode(line))
        except ValueError:
            pass  # the library of the driver wrote to stdout
    return samples


def _wait_for(descriptor: int, seconds: float) -> None:
    poll = select.poll()  # select() does not support descriptors above 1023
    poll.register(descriptor, select.POLLIN)
    poll.poll(seconds * 1000)
