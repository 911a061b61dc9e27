"""Our side of the watcher: start it, hear it, and do without it when the driver hangs.

Nothing here waits. A process that is stuck in the driver may not even die of SIGKILL, so it is
killed, forgotten, and reaped if that ever becomes possible.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Mapping

from stoker.core.gpus.sample import Sample
from stoker.devices.nvml_process import ACTIVE_SECONDS, IDLE_SECONDS
from stoker.devices.sample_lines import decode

_LONGEST_WAIT_SECONDS = 30.0
_SETTLED_SECONDS = 60.0
_MAX_STUCK = 3
_SILENT = "the NVIDIA driver does not answer"
_ENDED = "the GPU watcher ended without a word"


class NvmlClient:
    """A watcher that is always there, or soon will be again.

    `patience` is how long it may be late with a sample. The first one may take `start_patience`:
    a driver that no other program keeps awake needs seconds for each card.
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
        self._helper: _Helper | None = None
        self._ended: list[_Helper] = []
        self._news: list[Sample] = []
        self._failures = 0
        self._restart_at: float | None = None
        self._started_at = 0.0
        self._heard_at: float | None = None
        self._asked_at: float | None = None
        # Helpers come and go; this descriptor stays the same for whoever waits for it.
        self._poll = select.epoll()
        self._start(time.monotonic())

    def fileno(self) -> int:
        """Readable when `read` has something."""
        return self._poll.fileno()

    @property
    def pid(self) -> int | None:
        return None if self._helper is None else self._helper.pid

    def ask(self) -> None:
        """Want a sample that is taken from now on, rather than with the next beat."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        self._send(b"n")

    def set_active(self, active: bool) -> None:
        """Whether to sample often."""
        if active != self._active:
            self._active = active
            self._send(b"a" if active else b"i")

    def read(self) -> list[Sample]:
        """What has come."""
        if self._helper is not None:
            lines, alive = self._helper.receive()
            self._news += self._decoded(lines)
            if not alive:
                self._give_up(_ENDED, time.monotonic())
        news, self._news = self._news, []
        return news

    def next_deadline(self) -> float | None:
        """When to `check`."""
        if self._helper is None:
            return self._restart_at
        if self._heard_at is None:
            return self._started_at + self._start_patience
        beat = ACTIVE_SECONDS if self._active else IDLE_SECONDS
        deadline = self._heard_at + beat + self._patience
        if self._asked_at is None:
            return deadline
        return min(deadline, max(self._asked_at, self._heard_at) + self._patience)

    def check(self, now: float) -> list[Sample]:
        """Replace a helper that is silent or gone; also whatever `read` would return."""
        news = self.read()  # first, for it may be we who were away for so long
        self._ended = [helper for helper in self._ended if not helper.is_reaped()]
        deadline = self.next_deadline()
        if deadline is not None and now >= deadline:
            if self._helper is not None:
                self._give_up(_SILENT, now)
            else:
                self._start(now)
        news, self._news = news + self._news, []
        return news

    def close(self) -> None:
        if self._helper is not None:
            self._helper.kill()
            self._ended.append(self._helper)
            self._helper = None
        for helper in self._ended:
            if not helper.is_reaped():
                helper.close()
        self._ended = []
        self._restart_at = None
        self._poll.close()

    # -- the helper ----------------------------------------------------------------------------

    def _start(self, now: float) -> None:
        self._restart_at = None
        self._started_at = now
        self._heard_at = self._asked_at = None
        if len(self._ended) >= _MAX_STUCK:  # more of them would get stuck as well, and stay
            self._restart_at = now + _LONGEST_WAIT_SECONDS
            return
        try:
            self._helper = _Helper(self._env)
        except OSError as error:
            self._give_up(f"the GPU watcher cannot be started ({error.strerror})", now)
            return
        self._poll.register(self._helper.answers, select.EPOLLIN)
        if self._active:
            self._send(b"a")

    def _send(self, order: bytes) -> None:
        if self._helper is not None:
            self._helper.send(order)

    def _decoded(self, lines: list[bytes]) -> list[Sample]:
        samples = _samples(lines)
        if samples:
            self._heard_at = time.monotonic()
            if self._asked_at is not None and samples[-1].at >= self._asked_at:
                self._asked_at = None
        return samples

    def _give_up(self, trouble: str, now: float) -> None:
        if self._helper is not None:
            self._poll.unregister(self._helper.answers)
            self._helper.kill()
            self._ended.append(self._helper)
            self._helper = None
        if now - self._started_at > _SETTLED_SECONDS:
            self._failures = 0
        wait = min(2.0**self._failures, _LONGEST_WAIT_SECONDS)
        self._failures += 1
        self._restart_at = now + wait
        self._news.append(Sample(now, None, f"{trouble}; trying again in {wait:.0f} s"))


def sample_once(timeout: float = 5.0, env: Mapping[str, str] | None = None) -> Sample:
    """One sample for a short-lived command, in this time whatever the driver does."""
    give_up = time.monotonic() + timeout
    try:
        helper = _Helper(env, "--once")
    except OSError as error:
        trouble = f"the GPU watcher cannot be started ({error.strerror})"
        return Sample(time.monotonic(), None, trouble)
    try:
        while True:
            lines, alive = helper.receive()
            samples = _samples(lines)
            if samples:
                return samples[0]
            left = give_up - time.monotonic()
            if not alive or left <= 0:
                return Sample(time.monotonic(), None, _SILENT if alive else _ENDED)
            _wait_for(helper.answers, left)
    finally:
        helper.kill()
        _wait_for(helper.handle, 0.1)
        if not helper.is_reaped():
            helper.close()


class _Helper:
    """One process of nvml_process.py. It leads its own session, so Ctrl-C does not reach it."""

    def __init__(self, env: Mapping[str, str] | None, *options: str) -> None:
        # Without -P it would import from the folder we are in, which is any job's.
        argv = [sys.executable, "-P", "-m", "stoker.devices.nvml_process", "--named", *options]
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
            # By handle and not by PID: if the process that we are part of reaps all its children,
            # the number may soon be that of a job.
            self.handle = os.pidfd_open(self.pid)
        except OSError:
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._orders, self.answers = ours
        os.set_blocking(self._orders, False)
        os.set_blocking(self.answers, False)
        self._incoming = b""

    def send(self, order: bytes) -> None:
        try:
            os.write(self._orders, order)
        except (BlockingIOError, BrokenPipeError):
            pass  # stuck or dead: the deadline or the end of its answers will tell

    def receive(self) -> tuple[list[bytes], bool]:
        """(lines, whether more can come)."""
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
        """At the end of all talk; whether and when it dies is another matter."""
        os.close(self._orders)
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
            pass  # whoever reaps all children of this process has reaped it
        self.close()
        return True

    def close(self) -> None:
        os.close(self.handle)


def _samples(lines: list[bytes]) -> list[Sample]:
    samples = []
    for line in lines:
        try:
            samples.append(decode(line))
        except ValueError:
            pass  # not ours: the driver's library has written to stdout
    return samples


def _wait_for(descriptor: int, seconds: float) -> None:
    poll = select.poll()  # select() could not take descriptors above 1023
    poll.register(descriptor, select.POLLIN)
    poll.poll(seconds * 1000)
