"""The process of an interactive job: runs a program on a pseudo-terminal for a user's terminal.

    python -P -m stoker.features.terminal.session FOLDER IDLE_SECONDS shell|program -- COMMAND...

A terminal attaches through the Unix socket FOLDER/JOB (see frames.py; the other end is
features/terminal/start.py). The program starts when the first terminal attaches, and goes on when
the terminal goes away. Everything that it prints also goes to stdout, the log of the job. A new
terminal replaces the one before.
"""

from __future__ import annotations

import fcntl
import os
import pty
import selectors
import signal
import socket
import struct
import sys
import termios
import time

from stoker.engine.supervisor.process_table import read_processes
from stoker.engine.supervisor.sockets import listen
from stoker.features.terminal.frames import (
    DATA,
    NOTICE,
    SIZE,
    TAKEN,
    FrameReader,
    exit_frame,
    frame,
    read_size,
)
from stoker.text.commands.shell_words import TERMINAL_MODULE
from stoker.text.durations import format_duration

_BUSY_CORES = 0.05
_WARNING_SECONDS = 300.0  # before the end, or half of a shorter limit
_CHECKS = 8  # of the CPU time, per limit
_LONGEST_CHECK_SECONDS = 30.0


class IdleLimit:
    """Measures unused time. Times are monotonic; `cpu_seconds` is the sum of all processes.

    A job is used while something is typed or printed, and while its processes use at least
    `_BUSY_CORES` of a CPU core: a training that prints nothing goes on, a notebook without a
    running cell does not.
    """

    def __init__(self, limit: float, now: float) -> None:
        self._limit = limit  # 0: none
        self._used_at = now
        self._warned = False
        self._checked = (now, 0.0)

    @property
    def warning_seconds(self) -> float:
        """How long before the end the user is warned."""
        return min(_WARNING_SECONDS, self._limit / 2)

    def use(self, now: float) -> None:
        """Something was typed or printed."""
        self._used_at = now
        self._warned = False

    def check(self, now: float, cpu_seconds: float) -> None:
        """Count the time since the last check as used if processes were busy."""
        before, seconds = self._checked
        if now > before and cpu_seconds - seconds >= _BUSY_CORES * (now - before):
            self.use(now)
        self._checked = (now, cpu_seconds)

    def is_over(self, now: float) -> bool:
        return self._limit > 0 and now >= self._used_at + self._limit

    def must_warn(self, now: float) -> bool:
        """Whether the warning is due; True only once until the job is used again."""
        due = self._used_at + self._limit - self.warning_seconds
        if self._limit <= 0 or self._warned or now < due:
            return False
        self._warned = True
        return True

    def seconds_to_check(self) -> float | None:
        """The time between two checks; None without a limit."""
        if self._limit <= 0:
            return None
        return min(_LONGEST_CHECK_SECONDS, self._limit / _CHECKS)


SHELL = "shell"  # its exit code says nothing about success: the job is done when it ends
PROGRAM = "program"

_BLOCK = 1 << 16
_MAX_BUFFER = 1 << 18  # bytes that wait for a slow terminal; then the program waits too
_HANG_UP_SECONDS = 3.0  # for the program to end after SIGHUP
_LAST_BYTES_SECONDS = 5.0  # for the terminal to take the rest of the output
_TICK = os.sysconf("SC_CLK_TCK")


def session_argv(
    folder: str, idle_seconds: float, kind: str, words: tuple[str, ...]
) -> tuple[str, ...]:
    """The command of an interactive job."""
    head = (sys.executable, "-P", "-m", TERMINAL_MODULE)
    return (*head, folder, f"{idle_seconds:g}", kind, "--", *words)


def main(argv: list[str]) -> int:
    folder, idle, kind, _, *words = argv
    name = os.environ.get("STOKER_JOB_ID", str(os.getpid()))
    os.makedirs(folder, 0o700, exist_ok=True)
    session = Session(listen(folder, name), float(idle), words)
    try:
        code = session.serve()
    finally:
        try:
            os.unlink(os.path.join(folder, name))
        except OSError:
            pass
    return 0 if kind == SHELL and session.is_started else code


class Session:
    """A program on a pseudo-terminal, and the terminal that is attached to it, if any."""

    def __init__(
        self,
        listener: socket.socket,
        idle_seconds: float,
        words: list[str],
        first_terminal_seconds: float = 60.0,
    ) -> None:
        self.is_started = False
        self._listener = listener
        self._words = words
        self._idle_seconds = idle_seconds
        self._first_terminal_seconds = first_terminal_seconds
        self._idle = IdleLimit(idle_seconds, time.monotonic())
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._client: socket.socket | None = None
        self._reader = FrameReader()
        self._is_deaf = False  # the terminal takes no more output
        self._to_client = bytearray()
        self._to_program = bytearray()
        self._master = -1
        self._pid = 0
        self._status: int | None = None
        self._size = (24, 80)
        self._ends = False
        self._is_stopped = False  # by a signal
        self._wake_on_signals()

    def _wake_on_signals(self) -> None:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        self._signals = (ours, theirs)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._end)
        signal.signal(signal.SIGCHLD, lambda number, where: None)
        self._selector.register(ours, selectors.EVENT_READ, lambda mask: ours.recv(_BLOCK))

    def _end(self, number: int, where: object) -> None:
        self._ends = self._is_stopped = True

    # -- the loop ------------------------------------------------------------------------------

    def serve(self) -> int:
        """Serve until the program ends; returns its exit code, 128+N after signal N."""
        if not self._wait_for_terminal():
            return 1
        self._start_program()
        check = self._idle.seconds_to_check()
        check_at = time.monotonic() + (check or 0.0)
        while self._status is None and not self._ends:
            now = time.monotonic()
            for key, mask in self._selector.select(None if check is None else check_at - now):
                key.data(mask)
            self._reap()
            now = time.monotonic()
            if check is not None and now >= check_at:
                check_at = now + check
                self._check_idle(now)
        return self._finish()

    def _wait_for_terminal(self) -> bool:
        """False if no terminal attached: its user has gone."""
        end = time.monotonic() + self._first_terminal_seconds
        while self._client is None and not self._ends:
            left = end - time.monotonic()
            if left <= 0:
                waited = format_duration(self._first_terminal_seconds)
                self._log(f"not started, because no terminal was attached for {waited}")
                return False
            for key, mask in self._selector.select(left):
                key.data(mask)
        return not self._ends

    def _finish(self) -> int:
        """Send the rest of the output and the exit code to the terminal."""
        status = self._hang_up() if self._status is None else self._status
        while self._master >= 0 and self._read_program(selectors.EVENT_READ):
            pass
        code = os.waitstatus_to_exitcode(status)
        code = 128 - code if code < 0 else code
        if not self._is_stopped:  # else the terminal shows why Stoker stopped the job
            self._to_client += exit_frame(code)
        end = time.monotonic() + _LAST_BYTES_SECONDS
        while self._client is not None and self._to_client and time.monotonic() < end:
            self._watch_client()
            for key, mask in self._selector.select(end - time.monotonic()):
                key.data(mask)
        return code

    def _hang_up(self) -> int:
        """Close the terminal of the program, which then gets SIGHUP; kill what ignores that.

        Returns the wait status of the program.
        """
        self._drop_master()
        end = time.monotonic() + _HANG_UP_SECONDS
        while self._status is None and time.monotonic() < end:
            self._selector.select(end - time.monotonic())
            self._signals[0].recv(_BLOCK)
            self._reap()
        for pid in _descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        return os.waitpid(self._pid, 0)[1] if self._status is None else self._status

    def _check_idle(self, now: float) -> None:
        self._idle.check(now, _cpu_seconds())
        unused = format_duration(self._idle_seconds)
        if self._idle.is_over(now):
            self._say(f"ended because it was not used for {unused}")
            self._ends = True
        elif self._idle.must_warn(now):
            left = format_duration(self._idle.warning_seconds)
            self._say(f"not used lately: ends in {left} unless you type or run something")

    def _say(self, text: str) -> None:
        self._log(text)
        self._send(NOTICE, text.encode())

    def _log(self, text: str) -> None:
        self._record(f"\r\nstoker: {text}\r\n".encode())

    def _record(self, data: bytes) -> None:
        """Write to the log; a full disk does not end the program."""
        try:
            while data:
                data = data[os.write(1, data) :]
        except OSError:
            pass

    # -- the program ---------------------------------------------------------------------------

    def _start_program(self) -> None:
        self._pid, self._master = pty.fork()
        if not self._pid:
            _execute(self._words)
        self.is_started = True
        os.set_blocking(self._master, False)
        self._resize(*self._size)
        self._selector.register(self._master, selectors.EVENT_READ, self._serve_program)
        self._idle.use(time.monotonic())

    def _serve_program(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._write_program()
        if mask & selectors.EVENT_READ:
            self._read_program(mask)
        self._watch_program()

    def _read_program(self, mask: int) -> bool:
        """Read a block of output; False if there is none."""
        try:
            data = os.read(self._master, _BLOCK)
        except BlockingIOError:
            return False
        except OSError:  # EIO: no process has the terminal open
            data = b""
        if not data:
            self._drop_master()
            return False
        self._idle.use(time.monotonic())
        self._record(data)
        self._send(DATA, data)
        return True

    def _write_program(self) -> None:
        try:
            done = os.write(self._master, self._to_program[:_BLOCK])
            del self._to_program[:done]
        except BlockingIOError:
            pass
        except OSError:
            self._to_program.clear()

    def _watch_program(self) -> None:
        """Wait for output while the terminal keeps up, and for room if something was typed."""
        if self._master < 0:
            return
        events = selectors.EVENT_WRITE if self._to_program else 0
        if len(self._to_client) < _MAX_BUFFER:
            events |= selectors.EVENT_READ
        self._change(self._master, events, self._serve_program)

    def _change(self, target: int | socket.socket, events: int, call: object) -> None:
        known = target in self._selector.get_map()
        if events and known:
            self._selector.modify(target, events, call)
        elif events:
            self._selector.register(target, events, call)
        elif known:
            self._selector.unregister(target)

    def _drop_master(self) -> None:
        if self._master >= 0:
            self._change(self._master, 0, None)
            os.close(self._master)
            self._master = -1

    def _reap(self) -> None:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self._status = status

    def _resize(self, lines: int, columns: int) -> None:
        self._size = (lines, columns)
        if self._master >= 0:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))

    # -- the terminal --------------------------------------------------------------------------

    def _accept(self, mask: int) -> None:
        try:
            client = self._listener.accept()[0]
        except OSError:
            return
        client.setblocking(False)
        if self._client is not None:
            try:
                self._client.send(frame(TAKEN))
            except OSError:
                pass
            self._drop_client()
        self._client = client
        self._is_deaf = False
        self._reader = FrameReader()
        self._to_client.clear()
        if self._master >= 0:  # a changed size makes programs draw their screen again
            lines, columns = self._size
            self._resize(lines, max(1, columns - 1))
        self._idle.use(time.monotonic())
        self._watch_client()

    def _drop_client(self) -> None:
        if self._client is not None:
            self._change(self._client, 0, None)
            self._client.close()
            self._client = None
            self._to_client.clear()
            self._watch_program()

    def _watch_client(self) -> None:
        if self._client is None:
            return
        events = selectors.EVENT_WRITE if self._to_client else 0
        if len(self._to_program) < _MAX_BUFFER:
            events |= selectors.EVENT_READ
        self._change(self._client, events, self._serve_client)

    def _serve_client(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if mask & selectors.EVENT_READ and self._client is not None:
            self._read_client(self._client)
        self._watch_client()
        self._watch_program()

    def _read_client(self, client: socket.socket) -> None:
        try:
            data = client.recv(_BLOCK)
            if not data:
                raise ConnectionError
            for kind, content in self._reader.feed(data):
                if kind == DATA:
                    self._idle.use(time.monotonic())
                    self._to_program += content
                elif kind == SIZE:
                    self._resize(*read_size(content))
        except BlockingIOError:
            pass
        except (OSError, ValueError):
            self._drop_client()

    def _send(self, kind: bytes, content: bytes) -> None:
        if self._client is not None and not self._is_deaf:
            self._to_client += frame(kind, content)
            self._flush()
            self._watch_client()

    def _flush(self) -> None:
        if self._client is None:
            return
        try:
            done = self._client.send(self._to_client)
            del self._to_client[:done]
        except BlockingIOError:
            pass
        except OSError:  # it has gone, but what was typed before can still be read
            self._is_deaf = True
            self._to_client.clear()


def _execute(words: list[str]) -> None:
    """Become the program, in the child of `pty.fork`."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        os.write(2, f"stoker: cannot start {words[0]}: {error.strerror}\r\n".encode())
        os._exit(126 if isinstance(error, PermissionError) else 127)


def _descendants(root: int) -> list[int]:
    """The PIDs of all processes below a process."""
    table = read_processes()
    found = []
    for pid in table:
        above = pid
        while above in table and above != root:
            above = table[above].parent
        if above == root and pid != root:
            found.append(pid)
    return found


def _cpu_seconds() -> float:
    """CPU time of all processes below this one."""
    return sum(map(_cpu_ticks, _descendants(os.getpid()))) / _TICK


def _cpu_ticks(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return int(words[11]) + int(words[12])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
