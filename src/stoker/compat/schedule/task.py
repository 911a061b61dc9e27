"""Run the task of a call: one foreground job, and its reaction to Ctrl-C."""

from __future__ import annotations

import os
import select
import shutil
import signal
import time

from stoker.compat.foreground.entry import write_line
from stoker.compat.foreground.jobs import working_directory
from stoker.compat.schedule.options import STDOUT
from stoker.engine.devices.leases.lease import Lease
from stoker.engine.model import Context, Outcome
from stoker.engine.supervisor.foreground_jobs import ForegroundJobs
from stoker.engine.supervisor.messages import INHERIT, Order, Refused
from stoker.errors import Error

_NO_KILL = 1e9  # grace period in seconds: only another Ctrl-C kills
# The task ignores SIGINT, as with the original; a shell can set that up, posix_spawn cannot. It
# also waits until its PID is printed, and exits if `schedule` is gone by then.
_PREAMBLE = "trap '' INT; read -r _ </proc/self/fd/{} || exit 1; exec \"$@\""


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class NotStarted(Error):
    exit_code = 1


def check_program(program: str) -> None:
    """Raise NotStarted if the program does not exist, before waiting for a GPU."""
    if shutil.which(program) is None:
        problem = "is not executable" if os.path.isfile(program) else "was not found"
        raise NotStarted(
            f"the program `{program}` {problem}",
            "tasks run without a shell: use a path or the name of a program on PATH",
        )


class Signals:
    """Received signals, and a descriptor that becomes readable with them (self-pipe)."""

    def __init__(self) -> None:
        self.wake, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._writing = writing
        self.numbers: list[int] = []
        for number in (*_ENDING, signal.SIGUSR1, signal.SIGTSTP):
            # Keep SIGHUP ignored under nohup; the original always handled SIGINT.
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGINT:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
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


def stop_self() -> None:
    """Stop this process, as the default action of SIGTSTP would."""
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
        ends_at_first_interrupt: bool = False,
    ) -> None:
        """`ends_at_first_interrupt`: the first Ctrl-C ends the task without a warning (v2)."""
        mask = os.umask(0o077)
        os.umask(mask)
        context = Context(working_directory(), tuple(os.environ.items()), mask, "/bin/sh")
        start_pipe, self._start_pipe = os.pipe2(os.O_CLOEXEC)
        text, name = _PREAMBLE.format(start_pipe), "schedule"
        if err == STDOUT:  # the stdout of `schedule`, not of the task: only a shell can set that up
            text, name = (f'{text} 2>&1 >"$0"', out) if out is not None else (f"{text} 2>&1", name)
            out = err = None
        order = Order(
            1,
            1,
            1,
            ("/bin/sh", "-c", text, name, *words),
            False,
            0,
            env,
            (),
            out,
            err or INHERIT,
            False,
            None,
            _NO_KILL,
        )
        self._parent = ForegroundJobs(int.from_bytes(os.urandom(4), "little") >> 2 or 1, 0)
        self._parent.launch(order, context, [*lease.descriptors, start_pipe])
        lease.descriptors = []  # now owned by the parent
        self.pid = self._parent.pid_of(1) or 0  # 0: it could not be started
        self._is_stopping = False  # after SIGTERM or SIGHUP
        self._stage = 1 if ends_at_first_interrupt else 0
        self._may_kill_at: float | None = None

    def ignore(self, pid: int) -> None:
        """Do not treat a child process as part of the task."""
        self._parent.ignore((pid,))

    def resume(self) -> None:
        """Let the task start its program."""
        try:
            os.write(self._start_pipe, b"\n")
        except BrokenPipeError:
            pass  # the task was killed meanwhile
        os.close(self._start_pipe)

    def wait(self, signals: Signals, kill_delay: float, grace: float) -> Outcome:
        """Wait until no process of the task is left; raises NotStarted."""
        while True:
            for event in self._parent.events()[0]:
                if isinstance(event, Outcome):
                    self._parent.close()
                    return event
                if isinstance(event, Refused):
                    raise NotStarted(f"cannot start the task: {event.why}")
            for number in signals.take():
                self._handle(number, kill_delay, grace)
            if self._parent.has_events:
                continue
            at = self._parent.next_deadline()
            seconds = None if at is None else max(0.0, at - time.monotonic())
            select.select([self._parent.fileno(), signals.wake], [], [], seconds)

    def _handle(self, number: int, kill_delay: float, grace: float) -> None:
        if number == signal.SIGUSR1:
            return  # draining: the task may finish, and there is no other
        if number == signal.SIGTSTP:
            stop_self()
            return
        if number != signal.SIGINT:
            self._parent.stop(1, "user", 0.0 if self._is_stopping else grace)
            self._is_stopping = True
            return
        self._stage += 1
        if self._stage == 1:
            write_line(f"\nNext Ctrl-C terminate the task (PGID: {self.pid}).")
        elif self._stage == 2:
            write_line(f"\nThe task (PGID: {self.pid}) was terminated.")
            self._may_kill_at = time.monotonic() + kill_delay
            self._parent.stop(1, "user", _NO_KILL)
        elif self._may_kill_at is not None and time.monotonic() >= self._may_kill_at:
            write_line(f"\nThe task (PGID: {self.pid}) was killed.")
            self._parent.stop(1, "user", 0.0)


def number_in(words: tuple[str, ...], first: int) -> tuple[str, ...]:
    """Replace `__num__` by the port number of GPU `first`.

    >>> number_in(("serve", "--port", "__num__", "x__num__"), 2)
    ('serve', '--port', '3800', 'x__num__')
    """
    return tuple(str(3600 + 100 * first) if word == "__num__" else word for word in words)


def exit_code(outcome: Outcome) -> int:
    """The exit code as a shell reports it: 128 plus the number of the signal."""
    code = 1 if outcome.status is None else os.waitstatus_to_exitcode(outcome.status)
    return code if code >= 0 else 128 - code
