"""Exit code and signal of a wait status, as wait(2) returns it. None: the status is unknown."""

from __future__ import annotations


def exit_code_of(status: int | None) -> int | None:
    """The exit code; None if a signal ended the process.

    >>> exit_code_of(0), exit_code_of(2 << 8), exit_code_of(9), exit_code_of(None)
    (0, 2, None, None)
    """
    return None if status is None or status & 0x7F else status >> 8 & 0xFF


def signal_of(status: int | None) -> int | None:
    """The number of the signal that ended the process; None if it exited by itself.

    The bit for a core dump (0x80) is not part of the number.

    >>> signal_of(9), signal_of(11 | 0x80), signal_of(2 << 8), signal_of(None)
    (9, 11, None, None)
    """
    return None if status is None else status & 0x7F or None
