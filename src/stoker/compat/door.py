"""What every door's command does around its own work: errors as sentences, no tracebacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from stoker.core.terminal import printable
from stoker.errors import Error


def enter(command: Callable[[list[str]], int], arguments: list[str] | None = None) -> int:
    """Run a door's command with the words of the command line; its exit code."""
    _open_output()
    try:
        code = command(sys.argv[1:] if arguments is None else arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except Error as error:
        print(f"error: {printable(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"hint: {printable(error.hint)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader left; nothing more to say
        return 0


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
    data = f"{text}\n".encode("utf-8", "surrogateescape")
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        pass
