"""What every door's command does around its own work: errors as sentences, no tracebacks.

Next to nothing is imported before `enter`: a Ctrl-C that comes earlier shows where Python was.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from stoker.core.formats.byte_text import to_system
from stoker.errors import Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

Command = Callable[[list[str]], int]
_INTERRUPTED = 130


def enter(load: Callable[[], Command]) -> NoReturn:
    """Be a door: `load` imports its command, which gets the words of the command line."""
    _open_output()
    try:
        code = _flushed(_loaded(load)(sys.argv[1:]))
    except Error as error:
        _tell(error)
        code = error.exit_code
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except SystemExit as end:  # argparse: its help, or a usage error
        code = _flushed(end.code if isinstance(end.code, int) else 1)
    # Python takes some milliseconds to take itself apart, and nothing of ours depends on it.
    os._exit(code)


def _loaded(load: Callable[[], Command]) -> Command:
    """The imports, which are most of the start: undisturbed by the collector and by Ctrl-C."""
    import gc
    import signal

    gc.disable()
    heard = signal.getsignal(signal.SIGINT)
    if heard is signal.default_int_handler:
        # An exception would show, as it passes through the callbacks of the import machinery.
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(_INTERRUPTED))
    command = load()
    if heard is signal.default_int_handler:
        signal.signal(signal.SIGINT, heard)
    gc.enable()
    return command


def _tell(error: Error) -> None:
    from stoker.core.formats.terminal import printable

    say(f"error: {printable(error.message)}")
    if error.hint:
        say(f"hint: {printable(error.hint)}")


def _flushed(code: int) -> int:
    """The exit code, when what argparse has printed is written."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError as error:
        if code == 0:
            _give_up(error)
    return code


def _open_output() -> None:
    """Where stdout or stderr is closed, a file of ours would get its number, and what is said."""
    for number in (1, 2):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            if null != number:
                os.dup2(null, number)
                os.close(null)


def write_line(text: str) -> None:
    """A line on stdout, at once and in one piece, between whatever jobs write there.

    Bytes that are no text come out as they came in, and nobody has to be listening.
    """
    _write(1, text)


def say(text: str) -> None:
    """A line on stderr, beside stdout, which scripts read.

    Nobody has to be listening here either: a run must not end because its terminal did.
    """
    _write(2, text)


def _write(descriptor: int, text: str) -> None:
    try:
        write_all(descriptor, to_system(f"{text}\n"))
    except OSError:
        pass


def write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def print_bytes(data: bytes) -> None:
    """Output that somebody wants to have: without it there is nothing more to do."""
    try:
        write_all(1, data)
    except OSError as error:
        _give_up(error)


def _give_up(error: OSError) -> NoReturn:
    if isinstance(error, BrokenPipeError):
        os._exit(0)  # the reader left, and wants no more
    say(f"error: cannot write the output: {error.strerror}")
    os._exit(1)
