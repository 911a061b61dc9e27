"""Parse one report: a JSON line in $STOKER_METRICS, or `stoker: loss=0.2 step=10` in a log.

`report_files.py` reads these lines from growing files, `summary.py` summarizes them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

from stoker.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeGuard

MAX_LINE_LENGTH = 1_000_000
MAX_TEXT_LENGTH = 1000  # characters of a text value; longer text is truncated
RESERVED = ("step", "at", "attempt")
PREFIX = b"stoker:"

MAX_INT = 2**63 - 1
_NAME = re.compile(r"[\w./@-]{1,200}")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_WORD = re.compile(r"""\s*([^\s="']+)=("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"']\S*)(?=\s|$)""")
_ESCAPED = re.compile(r"\\(.)")


class InvalidReport(ValueError):
    """A line that looks like a report but is invalid; the message is the reason."""


class Report(Record):
    step: float | None
    values: dict[str, object]  # numbers, booleans, text
    at: float | None = None
    attempt: int | None = None


def read_json_line(line: bytes) -> Report:
    """Parse a line of $STOKER_METRICS; raises InvalidReport.

    >>> read_json_line(b'{"val_loss": 0.2, "step": 10}')
    Report(step=10, values={'val_loss': 0.2}, at=None, attempt=None)
    """
    if len(line) > MAX_LINE_LENGTH:
        raise InvalidReport(f"a line of more than {MAX_LINE_LENGTH} bytes")
    try:
        content = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidReport("not UTF-8") from None
    except (ValueError, RecursionError):
        raise InvalidReport("not valid JSON") from None
    if not isinstance(content, dict):
        raise InvalidReport("not a JSON object")
    return report_of(content)


def read_printed_line(line: bytes) -> Report | None:
    """Parse a line of a log; return None if it is not a report. Raises InvalidReport.

    >>> read_printed_line(b"stoker: acc=0.5 best=true note='two words'")
    Report(step=None, values={'acc': 0.5, 'best': True, 'note': 'two words'}, at=None, attempt=None)
    """
    for part in reversed(line.rstrip(b"\r\n").split(b"\r")):
        if part.startswith(PREFIX):
            break
    else:
        return None
    if len(part) > MAX_LINE_LENGTH:
        raise InvalidReport(f"a line of more than {MAX_LINE_LENGTH} bytes")
    if b"=" not in part:
        return None  # other output that happens to start with `stoker:`
    try:
        text = part[len(PREFIX) :].decode("utf-8").rstrip()
    except UnicodeDecodeError:
        raise InvalidReport("not UTF-8") from None
    content: dict[str, object] = {}
    position = 0
    while position < len(text):
        found = _WORD.match(text, position)
        if found is None:
            raise InvalidReport(f"`{text[position : position + 40].strip()}` is not name=value")
        content[found[1]] = _printed_value(found[2])
        position = found.end()
    return report_of(content)


def _printed_value(text: str) -> object:
    if text[0] in "\"'":
        return _ESCAPED.sub(r"\1", text[1:-1])
    text = text.rstrip(",") or text  # accept `a=1, b=2`
    if _NUMBER.fullmatch(text):
        try:
            return float(text) if set(text) & set(".eE") else int(text)
        except ValueError:  # thousands of digits
            raise InvalidReport("a number that is too long") from None
    if _NOT_FINITE.fullmatch(text):
        return float(text)
    if text in ("true", "True", "false", "False"):
        return text in ("true", "True")
    try:
        float(text)
    except ValueError:
        return text
    # Python reads 1_000 as a number; as text it would be missing from plots without a warning.
    raise InvalidReport(f"`{text[:40]}` is not a supported number format")


def can_name(text: str) -> bool:
    """Whether a metric can have this name."""
    return _NAME.fullmatch(text) is not None


def report_of(content: Mapping[str, object]) -> Report:
    """Check the values of one report; raises InvalidReport."""
    values = {}
    for name, value in content.items():
        if name in RESERVED or value is None:
            continue
        if not can_name(name):
            raise InvalidReport(
                f"`{name[:40]}` is not a name (letters, digits, _ . / - @, at most 200)"
            )
        values[name] = _value(name, value)
    step, at, attempt = (_reserved(name, content.get(name)) for name in RESERVED)
    if attempt is not None and not (isinstance(attempt, int) and attempt >= 0):
        raise InvalidReport("`attempt` is not an integer")
    return Report(step, values, at, attempt)


def _value(name: str, value: object) -> object:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT_LENGTH else value[: MAX_TEXT_LENGTH - 1] + "…"
    if isinstance(value, int) and abs(value) > MAX_INT:
        try:
            return float(value)
        except OverflowError:
            raise InvalidReport(f"`{name}` is too large") from None
    if isinstance(value, (int, float)):
        return value
    raise InvalidReport(f"`{name}` is neither a number nor text")


def _reserved(name: str, value: object) -> float | None:
    if value is None:
        return None
    value = _value(name, value)
    if not is_number(value) or not math.isfinite(value):
        raise InvalidReport(f"`{name}` is not a number")
    return value


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number; bool is a subclass of int in Python, but not a metric."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
