"""One value of a parameter: its data, and its text on a command line.

Programs get the text exactly as the user typed it (`1e-3`, `0.10`), because they may name folders
after it. Trials are compared by data, so 1e-3 and 0.001 are the same trial.
"""

from __future__ import annotations

import json
import math
import re

from stoker.errors import UsageError
from stoker.record import Record

_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]*)")  # 007 is a string, not the number 7
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
_NON_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "none": None}
_MAX_DIGITS = 300  # longer digit strings are strings; Python refuses to convert 4300 digits
MAX_DEPTH = 50  # nesting levels of lists and tables
_MAX_PARTS = 100_000  # per value: a few lines of YAML with aliases can expand to billions


class Value(Record):
    data: object  # None, bool, int, float, str, or lists and dicts of them
    text: str


Point = dict[str, Value]


def typed(text: str) -> Value:
    """Convert unquoted text: numbers, true, false, null and none are recognized.

    >>> typed("1e-3"), typed("007"), typed("none")
    (Value(data=0.001, text='1e-3'), Value(data='007', text='007'), Value(data=None, text='none'))
    """
    check_text(text)
    if text.lower() in _WORDS:
        return Value(_WORDS[text.lower()], text)
    if _NON_FINITE.fullmatch(text):
        raise UsageError(
            f"`{text}` cannot be the value of a parameter", "quote it if it is a string"
        )
    if len(text) <= _MAX_DIGITS and not _LEADING_ZERO.match(text):
        if _WHOLE.fullmatch(text):
            return Value(int(text), text)
        if _REAL.fullmatch(text):
            return Value(_finite(float(text), text), text)
    return Value(text, text)


def plain(text: str) -> Value:
    """A string value, even if the text looks like a number."""
    return Value(check_text(text), text)


def from_data(data: object, where: str = "a value") -> Value:
    """A value from a file or a program; its text is what Python and W&B would print."""
    checked = _Check(where).checked(data, 0)
    if isinstance(checked, str):
        return Value(checked, checked)
    if isinstance(checked, (list, dict)):
        return Value(checked, json.dumps(checked, ensure_ascii=False))
    return Value(checked, repr(checked))


def from_number(
    number: float, digits: int = 6, low: float = -math.inf, high: float = math.inf
) -> Value:
    """A sampled number, rounded to `digits` significant digits within [low, high].

    The data is the rounded number too, so that the text identifies the trial.
    """
    short = number
    for count in range(min(digits, 17), 18):
        short = float(f"{number:.{count}g}")
        if low <= short <= high:
            break
    return Value(short, repr(short))


def check_text(text: str) -> str:
    if "\0" in text:
        raise UsageError("a value contains a NUL byte, which cannot be passed to a program")
    return text


def canonical(data: object) -> object:
    """Normalize data so that equal values look equal: 1.0 becomes 1, but True stays True."""
    if isinstance(data, float) and data.is_integer():
        return int(data)
    if isinstance(data, list):
        return [canonical(part) for part in data]
    if isinstance(data, dict):
        return {key: canonical(part) for key, part in data.items()}
    return data


def key(data: object) -> str:
    """A text that is the same exactly for equal data."""
    return json.dumps(canonical(data), sort_keys=True, separators=(",", ":"))


def point_key(point: Point) -> str:
    return key({name: value.data for name, value in point.items()})


def point_to_json(point: Point) -> str:
    """JSON with the data and the text of each value."""
    return json.dumps({name: [value.data, value.text] for name, value in point.items()})


def point_from_json(text: str) -> Point:
    return {name: Value(data, written) for name, (data, written) in json.loads(text).items()}


class _Check:
    def __init__(self, where: str) -> None:
        self._where = where
        self._parts = 0

    def checked(self, data: object, depth: int) -> object:
        """Return a copy of `data`; raises UsageError if it cannot be a parameter value."""
        self._parts += 1
        if depth > MAX_DEPTH:
            raise UsageError(f"{self._where} is nested too deeply", f"at most {MAX_DEPTH} levels")
        if self._parts > _MAX_PARTS:
            raise UsageError(f"{self._where} has more than {_MAX_PARTS:,} elements")
        if data is None or isinstance(data, bool):
            return data
        if isinstance(data, int):
            if data.bit_length() > _MAX_DIGITS * 3:
                raise UsageError(
                    f"{self._where} is a number of more than {_MAX_DIGITS} digits",
                    "quote it if it is a string",
                )
            return data
        if isinstance(data, str):
            return check_text(data)
        if isinstance(data, float):
            return _finite(data, repr(data))
        if isinstance(data, (list, tuple)):
            return [self.checked(part, depth + 1) for part in data]
        if isinstance(data, dict) and all(isinstance(name, str) for name in data):
            return {check_text(name): self.checked(p, depth + 1) for name, p in data.items()}
        raise UsageError(
            f"{self._where} is a {type(data).__name__}, which cannot be the value of a parameter",
            "use numbers, strings, true, false, null, and lists and tables of them",
        )


def _finite(number: float, text: str) -> float:
    if not math.isfinite(number):
        raise UsageError(
            f"`{text}` cannot be the value of a parameter", "quote it if it is a string"
        )
    return number
