"""Connect this terminal to an interactive job; the other end is features/terminal/session.py."""

from __future__ import annotations

import os
import select
import signal
import socket
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
from stoker.record import Record

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
