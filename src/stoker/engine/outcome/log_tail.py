"""The last error in a log, for display and for counting equal failures.

failure_causes.py reports only causes that decide about retries. This module covers the other
failures: it returns the exception of the last traceback, or else the last line.
"""

from __future__ import annotations

import re

from stoker.text.terminal import printable

TAIL_BYTES = 16 << 10
_MAX_LENGTH = 200
_HEADER = b"Traceback (most recent call last)"
_REPORT = b"stoker:"
_ERRORS = ("Error", "Exception", "Interrupt", "Exit")
_COLOR = re.compile("\x1b\\[[0-9;]*m")
_AROUND = "()[]{}<>,;:.!?'\"`"


def last_error(tail: bytes) -> str | None:
    """Return the last error in the end of a log; None if the log is empty.

    >>> last_error(b"1\\nTraceback (most recent call last):\\n  ...\\nKeyError: 'lr'\\nbye\\n")
    "KeyError: 'lr'"
    >>> last_error(b"loading\\rloaded\\ntrain: no such file\\n\\n")
    'train: no such file'
    """
    lines = _lines(tail)
    return _traceback_end(lines) or (_shorten(lines[-1]) if lines else None)


def last_exception(tail: bytes) -> str | None:
    """Return the Python exception that ended a program; None if its log does not end with one.

    >>> last_exception(b"Traceback (most recent call last):\\n  ...\\nKeyError: 'lr'\\nbye\\n")
    "KeyError: 'lr'"
    >>> last_exception(b"SyntaxError: '(' was never closed\\n")
    "SyntaxError: '(' was never closed"
    >>> last_exception(b"no such file\\n")
    """
    lines = _lines(tail)
    traceback_end = _traceback_end(lines)
    found = traceback_end or (_shorten(lines[-1]) if lines else "")
    name = found.partition(":")[0]
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    return found if traceback_end or name.endswith(_ERRORS) else None


def _lines(tail: bytes) -> list[bytes]:
    lines = [line.rpartition(b"\r")[2] for line in tail.replace(b"\r\n", b"\n").split(b"\n")]
    return [line for line in lines if line.strip() and not line.startswith(_REPORT)]


def _traceback_end(lines: list[bytes]) -> str | None:
    """The exception of the last traceback."""
    headers = [place for place, line in enumerate(lines) if line.lstrip().startswith(_HEADER)]
    after = lines[headers[-1] + 1 :] if headers else []
    return next((_shorten(line) for line in after if not line[:1].isspace()), None)


def masked(text: str) -> str:
    """Replace numbers by `#`, so that errors that differ only in numbers are equal.

    >>> masked("trial 17: cannot fit 1e-05 at 0x7f3a")
    'trial #: cannot fit # at #'
    """
    words = []
    for word in text.split(" "):
        core = word.strip(_AROUND)
        is_number = core[:1].isdigit() or core[1:2].isdigit()
        words.append(word.replace(core, "#") if is_number else re.sub(r"#?\d+", "#", word))
    return " ".join(words)


def _shorten(line: bytes) -> str:
    text = printable(_COLOR.sub("", line.decode("utf-8", "replace")).strip())
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"
