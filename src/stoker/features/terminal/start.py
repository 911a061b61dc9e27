"""Start an interactive job, wait until it has its GPUs, and attach this terminal to it."""

from __future__ import annotations

import os
import select
import signal
import socket
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stoker.cli.open_queue import at_end
from stoker.cli.output import ProgressLine, notice
from stoker.cli.start_notice import STARTED
from stoker.cli.verbs.wait import code_of
from stoker.client.live.change_feed import ChangeFeed
from stoker.client.queue import Queue
from stoker.client.submit.job_options import flag_values
from stoker.client.submit.job_specs import JobSpecs
from stoker.client.submit.parsed_options import check_words
from stoker.client.views import job as views
from stoker.client.views import why as wait_reasons
from stoker.engine.model import LOCAL
from stoker.engine.store import job_queries
from stoker.engine.store.job_queries import JobRow
from stoker.engine.supervisor.sockets import connect
from stoker.errors import Conflict, NotFound, UsageError
from stoker.features.terminal.frames import (
    DATA,
    EXIT,
    NOTICE,
    TAKEN,
    FrameReader,
    frame,
    read_exit,
    size_frame,
)
from stoker.features.terminal.session import PROGRAM, SHELL, session_argv
from stoker.record import Record
from stoker.settings import Settings
from stoker.states import FINAL, WAITING
from stoker.text.activation import is_in_container
from stoker.text.command_line import Parsed
from stoker.text.commands.shell_words import is_interactive, plain_words
from stoker.text.durations import format_duration
from stoker.text.terminal import cut, printable

DETACH_KEYS = b"\x10\x11"  # Ctrl-P Ctrl-Q, as in docker
_BLOCK = 1 << 16
_ENDS = (signal.SIGTERM, signal.SIGHUP)


class Ended(Record):
    """How a connection ended: with an exit code, or because the terminal was detached."""

    code: int | None = None
    is_detached: bool = False
    is_taken: bool = False  # another terminal is attached now


class DetachKeys:
    """Finds the detach keys in what is typed."""

    def __init__(self) -> None:
        self._held = b""  # typed bytes that may be the beginning of the keys

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """Return what to pass on, and whether the keys were typed."""
        data = self._held + data
        at = data.find(DETACH_KEYS)
        if at >= 0:
            self._held = b""
            return data[:at], True
        keep = 1 if data.endswith(DETACH_KEYS[:1]) else 0
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep], False


def relay(
    connection: socket.socket,
    greeting: str,
    next_notice: Callable[[], tuple[str | None, float | None]],
) -> Ended:
    """Pass keys and output on until the program ends or the terminal is detached.

    `greeting` is shown when keys go to the program. `next_notice` returns a text to show now, if
    any, and the seconds until it must be called again.
    """
    with _raw_terminal() as signals:
        _write(f"{greeting}\r\n".encode())
        return _Relay(connection, signals, next_notice).run()


@contextmanager
def _raw_terminal() -> Iterator[socket.socket]:
    """Every key goes to the program. Yields a socket that becomes readable after a signal."""
    before = termios.tcgetattr(0)
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    old_fd = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    old = {
        number: signal.signal(number, lambda number, where: None)
        for number in (signal.SIGWINCH, *_ENDS)
    }
    try:
        tty.setraw(0, termios.TCSADRAIN)
        yield ours
    finally:
        try:
            termios.tcsetattr(0, termios.TCSADRAIN, before)
        except termios.error:
            pass  # the terminal was closed
        signal.set_wakeup_fd(old_fd)
        for number, handler in old.items():
            signal.signal(number, handler)
        ours.close()
        theirs.close()


class _Relay:
    def __init__(
        self,
        connection: socket.socket,
        signals: socket.socket,
        next_notice: Callable[[], tuple[str | None, float | None]],
    ) -> None:
        self._connection = connection
        self._signals = signals
        self._next_notice = next_notice
        self._keys = DetachKeys()
        self._reader = FrameReader()

    def run(self) -> Ended:
        self._send_size()
        watched: list[socket.socket | int] = [self._connection, self._signals, 0]
        while True:
            text, seconds = self._next_notice()
            if text is not None:
                self._show(text)
            ready = select.select(watched, [], [], seconds)[0]
            ended = None
            if self._signals in ready:
                ended = self._handle_signals()
            if self._connection in ready:
                ended = ended or self._read_connection()
            if 0 in ready:
                ended = ended or self._read_keys()
            if ended is not None:
                return ended

    def _handle_signals(self) -> Ended | None:
        numbers = self._signals.recv(_BLOCK)
        if any(number in numbers for number in _ENDS):
            return _detached()
        self._send_size()
        return None

    def _read_keys(self) -> Ended | None:
        try:
            data = os.read(0, _BLOCK)
        except OSError:
            data = b""
        if not data:
            return _detached()  # the terminal was closed
        typed, detaches = self._keys.feed(data)
        if typed:
            self._send(frame(DATA, typed))
        return _detached() if detaches else None

    def _read_connection(self) -> Ended | None:
        try:
            data = self._connection.recv(_BLOCK)
        except OSError:
            data = b""
        if not data:
            return Ended()
        for kind, content in self._reader.feed(data):
            if kind == DATA:
                _write(content)
            elif kind == NOTICE:
                self._show(content.decode(errors="replace"))
            elif kind == EXIT:
                return Ended(code=read_exit(content))
            elif kind == TAKEN:
                return Ended(is_taken=True)
        return None

    def _send_size(self) -> None:
        try:
            size = os.get_terminal_size(0)
        except OSError:
            return
        self._send(size_frame(size.lines, size.columns))

    def _send(self, data: bytes) -> None:
        try:
            self._connection.sendall(data)
        except OSError:
            pass  # the next read returns the end

    def _show(self, text: str) -> None:
        _write(f"\r\nstoker: {text}\r\n".encode())


def _detached() -> Ended:
    _write(b"\r\n")
    return Ended(is_detached=True)


def _write(data: bytes) -> None:
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        pass  # the terminal was closed


PRIORITY = 10  # a person waits, so interactive jobs start before those of the default priority
_FOLDER = "terminals"
_LISTED = 10_000
_CAUSE_SECONDS = 3.0  # to learn whether the program was ended by Stoker
_REASON_SECONDS = 2.0  # between two updates of the reason why the job waits


def run_interactive(queue: Queue, parsed: Parsed, words: list[str]) -> int:
    """Run a command, or a shell if there is none, on this terminal as a job of the queue.

    Returns its exit code. Raises UsageError without a terminal.
    """
    check_terminal()
    values = flag_values(parsed.values)
    if values.get("on") not in (None, LOCAL):
        raise UsageError(
            f"interactive jobs run on this host only, not on {values['on']}",
            "on a Slurm cluster: srun --pty bash",
        )
    values.setdefault("on", LOCAL)
    values.setdefault("priority", PRIORITY)
    idle = queue.settings.terminal_idle if parsed["idle"] is None else parsed["idle"]
    kind = PROGRAM if words else SHELL
    command = _command(queue.settings, words, is_argv=parsed.dashed)
    specs = JobSpecs(queue.settings, queue.devices(), values)
    if is_in_container(specs.base.settings.activation):
        raise UsageError(
            "interactive jobs cannot run in a container",
            "start a shell on GPUs, and run the container from there: stoker shell",
        )
    folder = os.path.join(queue.settings.state_dir, _FOLDER)
    spec = specs.command(list(session_argv(folder, idle, kind, command)), is_argv=True)
    spec = spec._replace(snapshot=None)  # a user edits the files of the folder
    if spec.name is None and kind == SHELL:
        spec = spec._replace(name="shell")
    job = queue.submission().add([spec], time.time()).first
    try:
        if queue.ensure_daemon():
            notice(STARTED)
        row = _wait_for_start(queue, job)
    except BaseException as error:
        queue.cancel([job])
        if not isinstance(error, KeyboardInterrupt):
            raise
        notice(f"job {job} cancelled")
        return 130
    return attach(queue, row)


def _command(settings: Settings, words: list[str], *, is_argv: bool) -> tuple[str, ...]:
    """The words to run: a shell without words; one quoted argument is run by the shell."""
    shell = settings.shell or os.environ.get("SHELL") or "/bin/sh"
    if not words:
        return (shell,)
    check_words(tuple(words))
    if len(words) == 1 and not is_argv:
        return plain_words(words[0]) or (shell, "-c", words[0])
    return tuple(words)


def check_terminal() -> None:
    """Raise UsageError if stdin or stdout is not a terminal."""
    if not (os.isatty(0) and os.isatty(1)):
        raise UsageError("an interactive job needs a terminal", "in scripts, use `stoker submit`")


def _wait_for_start(queue: Queue, job: int) -> JobRow:
    """Show why the job waits until it starts or ends. Raises KeyboardInterrupt also on SIGHUP."""
    changes = ChangeFeed(queue.settings.state_dir)
    at_end(changes.close)
    line = ProgressLine()
    shown_at = 0.0
    old = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        while True:
            row = job_queries.job(queue.db, job)
            if row.state in FINAL or row.state == "running":
                return row
            if row.state in WAITING and time.monotonic() >= shown_at + _REASON_SECONDS:
                shown_at = time.monotonic()
                line.write(_reason(queue, row))
            changes.wait(_REASON_SECONDS)
    finally:
        line.clear()
        for number, handler in old.items():
            signal.signal(number, handler)


def _reason(queue: Queue, row: JobRow) -> str:
    found = wait_reasons.explain_wait(queue.db, queue.settings, row)
    text = f"job {row.id} waits" + (": " + "; ".join(found.reasons) if found.reasons else "")
    try:
        columns = os.get_terminal_size(2).columns
    except OSError:
        columns = 80
    return cut(printable(text), columns - 1)


def newest_interactive(queue: Queue) -> int:
    """The newest interactive job that runs. Raises NotFound."""
    for row in job_queries.jobs_in_states(queue.db, ("running",), _LISTED, newest_first=True):
        if is_interactive(row.argv):
            return row.id
    raise NotFound("no interactive job is running", "to start one: stoker shell")


def attach(queue: Queue, row: JobRow) -> int:
    """Attach this terminal to an interactive job that has started; returns the exit code."""
    if not is_interactive(row.argv):
        raise Conflict(
            f"job {row.id} is not interactive, so no terminal can attach to it",
            f"to follow its output: stoker log -f {row.id}",
        )
    if row.state in WAITING:
        raise Conflict(
            f"job {row.id} is {row.state}", f"`stoker why {row.id}` says what it waits for"
        )
    connection = None
    changes = ChangeFeed(queue.settings.state_dir)
    at_end(changes.close)
    while connection is None and row.state not in FINAL:
        try:
            connection = connect(os.path.join(queue.settings.state_dir, _FOLDER), str(row.id))
        except OSError:  # it is starting
            changes.wait(0.02)
            row = job_queries.job(queue.db, row.id)
    if connection is None:
        return _report(queue, row)
    devices = ", ".join(map(str, row.devices))
    place = f" on GPU {devices}" if devices else ""
    greeting = f"job {row.id}{place}; to leave it running: Ctrl-P Ctrl-Q"
    limit = LimitNotice(lambda: _seconds_left(queue, row.id))
    with connection:
        ended = relay(connection, greeting, limit.next)
    if ended.is_taken:
        notice(f"another terminal is attached to job {row.id} now")
        return 0
    if ended.is_detached:
        notice(f"job {row.id} goes on; to return: stoker attach {row.id}")
        return 0
    # After an exit code, processes in the background may go on, and the job with them.
    until = time.monotonic() + _CAUSE_SECONDS if ended.code is not None else None
    while row.state not in FINAL and (ended.code is None or ended.code > 128):
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            break
        changes.wait(left)
        row = job_queries.job(queue.db, row.id)
    if ended.code is None or row.state == "cancelled" or row.cause == "time_limit":
        return _report(queue, row)
    return ended.code


def _report(queue: Queue, row: JobRow) -> int:
    words = views.result_words(row, queue.db)
    notice(f"job {row.id} {row.state}" + (f": {words}" if words else ""))
    return code_of(row)


def _seconds_left(queue: Queue, job: int) -> float | None:
    row = job_queries.job(queue.db, job)
    if row.time_limit is None or row.started_at is None:
        return None
    return row.started_at + row.time_limit - time.time()


_WARN_SECONDS = (300.0, 60.0)
_SOON = 2.0  # seconds; timers may be a little early


class LimitNotice:
    """`seconds_left` reads how long the job may still run, because a user may change the limit."""

    def __init__(self, seconds_left: Callable[[], float | None]) -> None:
        self._seconds_left = seconds_left
        self._shown_for = float("inf")  # the smallest threshold that was announced

    def next(self) -> tuple[str | None, float | None]:
        """A warning that is due, and the seconds until the next one can be due."""
        left = self._seconds_left()
        if left is None:
            return None, None
        due = [one for one in _WARN_SECONDS if left <= one + _SOON]
        text = None
        if due and min(due) < self._shown_for:
            self._shown_for = min(due)
            text = f"the time limit ends this job in {format_duration(max(0.0, round(left)))}"
        later = [left - one for one in _WARN_SECONDS if one not in due]
        return text, min(later) if later else None
