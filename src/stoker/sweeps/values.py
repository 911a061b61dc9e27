"""One value of a parameter: what it is, and how it is written on a command line.

What a user typed is passed on as typed: `1e-3` stays `1e-3` and `0.10` stays `0.10`, because a
program may make a folder of that name. What it means is a number, so 1e-3 and 0.001 are one trial.
"""

from __future__ import annotations

import json
import math
import re

from stoker.core.record import Record
from stoker.errors import UsageError

_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]*)")  # 007 is a name, not a seven
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
_NO_NUMBER = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "none": None}
_MOST_DIGITS = 300  # Python refuses to convert thousands of them, and nobody means a number
DEEPEST = 50  # levels of lists and tables
_MOST_PARTS = 100_000  # of one value: a few lines of YAML with aliases can mean billions


class Value(Record):
    data: object  # None, bool, int, float, str, or lists and dicts of them
    text: str


Point = dict[str, Value]


def typed(text: str) -> Value:
    """What somebody typed without quotes.

    >>> typed("1e-3"), typed("007"), typed("none")
    (Value(data=0.001, text='1e-3'), Value(data='007', text='007'), Value(data=None, text='none'))
    """
    check_text(text)
    if text.lower() in _WORDS:
        return Value(_WORDS[text.lower()], text)
    if _NO_NUMBER.fullmatch(text):
        raise UsageError(f"`{text}` cannot be the value of a parameter", "quote it if it is a name")
    if len(text) <= _MOST_DIGITS and not _LEADING_ZERO.match(text):
        if _WHOLE.fullmatch(text):
            return Value(int(text), text)
        if _REAL.fullmatch(text):
            return Value(_finite(float(text), text), text)
    return Value(text, text)


def plain(text: str) -> Value:
    """A text that is a text whatever it looks like."""
    return Value(check_text(text), text)


def from_data(data: object, where: str = "a value") -> Value:
    """A value from a file or a program, written as Python and W&B would print it."""
    checked = _Check(where).checked(data, 0)
    if isinstance(checked, str):
        return Value(checked, checked)
    if isinstance(checked, (list, dict)):
        return Value(checked, json.dumps(checked, ensure_ascii=False))
    return Value(checked, repr(checked))


def from_number(
    number: float, digits: int = 6, low: float = -math.inf, high: float = math.inf
) -> Value:
    """A sampled number, as short as it can be: its text is what it is, so identities are stable."""
    short = number
    for count in range(min(digits, 17), 18):
        short = float(f"{number:.{count}g}")
        if low <= short <= high:
            break
    return Value(short, repr(short))


def check_text(text: str) -> str:
    if "\0" in text:
        raise UsageError("a value holds a NUL byte, which no program can be given")
    return text


def canonical(data: object) -> object:
    """Data such that what is equal looks equal: 1.0 is 1, and True stays True."""
    if isinstance(data, float) and data.is_integer():
        return int(data)
    if isinstance(data, list):
        return [canonical(part) for part in data]
    if isinstance(data, dict):
        return {key: canonical(part) for key, part in data.items()}
    return data


def key(data: object) -> str:
    """The same text for equal data, another for other data."""
    return json.dumps(canonical(data), sort_keys=True, separators=(",", ":"))


def point_key(point: Point) -> str:
    return key({name: value.data for name, value in point.items()})


def point_to_json(point: Point) -> str:
    """What each value is, and how it is written."""
    return json.dumps({name: [value.data, value.text] for name, value in point.items()})


def point_from_json(text: str) -> Point:
    return {name: Value(data, written) for name, (data, written) in json.loads(text).items()}


class _Check:
    def __init__(self, where: str) -> None:
        self._where = where
        self._parts = 0

    def checked(self, data: object, depth: int) -> object:
        """A copy of data that can be the value of a parameter."""
        self._parts += 1
        if depth > DEEPEST:
            raise UsageError(f"{self._where} is nested too deeply", f"at most {DEEPEST} levels")
        if self._parts > _MOST_PARTS:
            raise UsageError(f"{self._where} has more than {_MOST_PARTS:,} parts")
        if data is None or isinstance(data, bool):
            return data
        if isinstance(data, int):
            if data.bit_length() > _MOST_DIGITS * 3:
                raise UsageError(f"{self._where} is a number of more than {_MOST_DIGITS} digits",
                                 "quote it if it is a name")  # fmt: skip
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
            "use numbers, texts, true, false, null, and lists and tables of them",
        )


def _finite(number: float, text: str) -> float:
    if not math.isfinite(number):
        raise UsageError(f"`{text}` cannot be the value of a parameter", "quote it if it is a name")
    return number
