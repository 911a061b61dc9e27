"""Entry point of every compatible command: error messages instead of tracebacks, and plain output.

This module imports almost nothing: a Ctrl-C that arrives before `run_and_exit` prints a traceback.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable

from stoker.errors import Error
from stoker.text.byte_text import to_system

_INTERRUPTED = 130


def run_and_exit(module: str) -> None:
    """Call `run` of the module with the arguments of this process, and exit.

    An `Error` is printed as an `error:` line and a `hint:` line.
    """
    open_closed_streams()
    try:
        code = _flush_output(_import_command(module)(sys.argv[1:]))
    except Error as error:
        _print_error(error)
        code = error.exit_code
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except SystemExit as end:  # argparse printed its help or a usage error
        code = _flush_output(end.code if isinstance(end.code, int) else 1)
    except OSError as error:
        if not _is_of_argparse(error):
            raise
        code = 2  # a usage error that cannot be written: older Pythons raise that
    # Skip the interpreter shutdown, which takes some milliseconds and is not needed here.
    os._exit(code)


def _is_of_argparse(error: OSError) -> bool:
    """Whether argparse raised the error while it printed something."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__") == "argparse"


def _import_command(module: str) -> Callable[[list[str]], int]:
    """Import the command without garbage collection; Ctrl-C during the import exits silently."""
    import signal  # slow to import

    gc.disable()
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        # A KeyboardInterrupt inside importlib's callbacks would print a traceback.
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(_INTERRUPTED))
    command: Callable[[list[str]], int] = __import__(module, fromlist=["run"]).run
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, handler)
    gc.enable()
    return command


def _print_error(error: Error) -> None:
    from stoker.text.terminal import printable  # slow to import

    write_notice(f"error: {printable(error.message)}")
    if error.hint:
        write_notice(f"hint: {printable(error.hint)}")


def _flush_output(code: int) -> int:
    """Write what argparse printed, and return `code`; exits with 1 if it cannot be written."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError as error:
        if code == 0:
            _exit_unwritable(error)
    return code


def open_closed_streams() -> None:
    """Open /dev/null, only for writing, as stdin, stdout and stderr where they are closed.

    Otherwise the next file that is opened gets their descriptor: it would receive the output, or
    its bytes would be read as commands. Reading from a closed stdin stays an error.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            if null != number:
                os.dup2(null, number)
                os.close(null)


def write_line(text: str) -> None:
    """Write a line to stdout with one system call, so that output of jobs cannot split it.

    Undecodable bytes are written unchanged. Write errors are ignored.
    """
    _write(1, text)


def write_notice(text: str) -> None:
    """Write a line to stderr, because scripts parse stdout.

    Write errors are ignored: a run continues after its terminal was closed.
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
    """Write the output of the command to stdout; exits if it cannot be written."""
    try:
        write_all(1, data)
    except OSError as error:
        _exit_unwritable(error)


def _exit_unwritable(error: OSError) -> None:
    if isinstance(error, BrokenPipeError):
        os._exit(0)  # the reader closed the pipe, e.g. `| head`
    write_notice(f"error: cannot write the output: {error.strerror}")
    os._exit(1)
