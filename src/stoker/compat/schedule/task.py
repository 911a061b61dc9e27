"""Run the task of a call: one attached job, and what Ctrl-C does to it."""

from __future__ import annotations

import os
import select
import shutil
import signal
import time

from stoker.compat.foreground.entry import write_line
from stoker.compat.foreground.scratch_folders import working_directory
from stoker.compat.schedule.options import STDOUT
from stoker.core.model import Context, Outcome
from stoker.devices.leases.lease import Lease
from stoker.errors import Error
from stoker.supervisor.foreground_jobs import ForegroundJobs
from stoker.supervisor.messages import INHERIT, Order, Refused

_TERMINATED_FOR_GOOD = 1e9  # seconds: only another Ctrl-C kills
# The task ignores Ctrl-C, as it always did; a shell can say so, posix_spawn cannot. And it waits
# until its PID is on the screen, unless we are gone by then.
_FIRST = "trap '' INT; read -r _ </proc/self/fd/{} || exit 1; exec \"$@\""


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class NotStarted(Error):
    exit_code = 1


def check_program(program: str) -> None:
    """Before anybody waits for hours for a program that is not there."""
    if shutil.which(program) is None:
        what = "is not executable" if os.path.isfile(program) else "was not found"
        raise NotStarted(f"the program `{program}` {what}",
                         "it runs without a shell: give a path or a name on PATH")  # fmt: skip


class Signals:
    """Signals as numbers to be asked for, and a descriptor that is readable when there are any."""

    def __init__(self) -> None:
        self.wake, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._writing = writing
        self.numbers: list[int] = []
        for number in (*_ENDING, signal.SIGUSR1, signal.SIGTSTP):
            # Under nohup a closed terminal must stay ignored; Ctrl-C was always heard.
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGINT:
                signal.signal(number, self._hear)

    def _hear(self, number: int, frame: object) -> None:
        self.numbers.append(number)
        try:
            os.write(self._writing, b".")
        except BlockingIOError:
            pass

    def take(self) -> list[int]:
        try:
            os.read(self.wake, 1 << 16)
        except BlockingIOError:
            pass
        taken, self.numbers = self.numbers, []
        return taken


def stop_here() -> None:
    """What Ctrl-Z does anyway, at a moment of our choice."""
    os.kill(os.getpid(), signal.SIGSTOP)


class Task:
    """A running task."""

    def __init__(
        self,
        words: tuple[str, ...],
        env: dict[str, str],
        out: str | None,
        err: str | None,
        lease: Lease,
        *,
        is_warned: bool = False,
    ) -> None:
        """`is_warned`: the first Ctrl-C ends the task, as the second generation had it."""
        mask = os.umask(0o077)
        os.umask(mask)
        context = Context(working_directory(), tuple(os.environ.items()), mask, "/bin/sh")
        may_go, self._go = os.pipe2(os.O_CLOEXEC)
        text, name = _FIRST.format(may_go), "schedule"
        if err == STDOUT:  # ours, wherever the task's own goes; only a shell can say that
            text, name = (f'{text} 2>&1 >"$0"', out) if out is not None else (f"{text} 2>&1", name)
            out = err = None
        order = Order(
            1, 1, 1, ("/bin/sh", "-c", text, name, *words), False, 0, env, (), out, err or INHERIT,
            False, None, _TERMINATED_FOR_GOOD, False,
        )  # fmt: skip
        self._parent = ForegroundJobs(int.from_bytes(os.urandom(4), "little") >> 2 or 1, 0)
        self._parent.launch(order, context, [*lease.descriptors, may_go])
        lease.descriptors = []  # the parent's now
        self.pid = self._parent.pid_of(1) or 0  # 0: it could not be started
        self._is_asked = False  # by SIGTERM or SIGHUP
        self._stage = 1 if is_warned else 0
        self._may_kill_at: float | None = None

    def ignore(self, pid: int) -> None:
        """A child of ours that has nothing to do with the task."""
        self._parent.ignore((pid,))

    def go(self) -> None:
        try:
            os.write(self._go, b"\n")
        except BrokenPipeError:
            pass  # it was killed at once
        os.close(self._go)

    def wait(self, signals: Signals, kill_delay: float, grace: float) -> Outcome:
        """Until nothing of the task is left."""
        while True:
            for fact in self._parent.events()[0]:
                if isinstance(fact, Outcome):
                    self._parent.close()
                    return fact
                if isinstance(fact, Refused):
                    raise NotStarted(f"the task cannot be started: {fact.why}")
            for number in signals.take():
                self._obey(number, kill_delay, grace)
            if self._parent.has_facts:
                continue
            at = self._parent.next_deadline()
            seconds = None if at is None else max(0.0, at - time.monotonic())
            select.select([self._parent.fileno(), signals.wake], [], [], seconds)

    def _obey(self, number: int, kill_delay: float, grace: float) -> None:
        if number == signal.SIGUSR1:
            return  # it was the only task, and it may finish
        if number == signal.SIGTSTP:
            stop_here()
            return
        if number != signal.SIGINT:
            self._parent.stop(1, "user", 0.0 if self._is_asked else grace)
            self._is_asked = True
            return
        self._stage += 1
        if self._stage == 1:
            write_line(f"\nNext Ctrl-C terminate the task (PGID: {self.pid}).")
        elif self._stage == 2:
            write_line(f"\nThe task (PGID: {self.pid}) was terminated.")
            self._may_kill_at = time.monotonic() + kill_delay
            self._parent.stop(1, "user", _TERMINATED_FOR_GOOD)
        elif self._may_kill_at is not None and time.monotonic() >= self._may_kill_at:
            write_line(f"\nThe task (PGID: {self.pid}) was killed.")
            self._parent.stop(1, "user", 0.0)


def number_in(words: tuple[str, ...], first: int) -> tuple[str, ...]:
    """
    >>> number_in(("serve", "--port", "__num__", "x__num__"), 2)
    ('serve', '--port', '3800', 'x__num__')
    """
    return tuple(str(3600 + 100 * first) if word == "__num__" else word for word in words)


def exit_code(outcome: Outcome) -> int:
    """As a shell tells it: 128 and more for signals."""
    code = 1 if outcome.status is None else os.waitstatus_to_exitcode(outcome.status)
    return code if code >= 0 else 128 - code
