"""How domains are written on a command line and in the texts of a file.

    a,b,c              these values; quotes keep commas and parentheses: 'a,b',"c(d)"
    choice(a,b,c)      the same
    [1,2],[3,4]        lists are values too
    range(5)           0 1 2 3 4, as Python counts: range(a, b), range(a, b, step), also 0.1
    int(1,8)           whole numbers, both ends included
    interval(0,1)      real numbers, every one as likely
    log(1e-5,1e-1)     real numbers, every order of magnitude as likely
    normal(0,1)        mean and deviation
    file(path)         one value a line, as it stands there; empty lines are skipped
    zip((a,1),(b,2))   rows for several parameters that advance together: opt,bs=zip(...)

What is quoted is a text, whatever it looks like: '1' is not the number 1.
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

from stoker.core.formats.suggestions import nearest
from stoker.errors import UsageError
from stoker.sweeps.domains import Choices, Domain, choices, continuous, steps, whole
from stoker.sweeps.values import DEEPEST, Value, from_data, plain, typed

_CALL = re.compile(r"\s*([A-Za-z_]+)\((.*)\)\s*", re.DOTALL)
_NAME = re.compile(r"(?:\+{0,2}|~)[A-Za-z_0-9][A-Za-z0-9_./@-]*")  # Hydra: +db.user, ~opt
_FUNCTIONS = ("choice", "range", "int", "interval", "log", "normal", "file", "zip")
# As numpy, Optuna, Ray Tune and W&B call them.
_OTHER_NAMES = {
    "uniform": "interval", "float": "interval", "q_uniform": "interval", "quniform": "interval",
    "loguniform": "log", "log_uniform": "log", "log_uniform_values": "log", "logspace": "log",
    "randint": "int", "int_uniform": "int", "integer": "int", "gauss": "normal", "norm": "normal",
    "gaussian": "normal", "randn": "normal", "categorical": "choice", "values": "choice",
    "list": "choice", "arange": "range", "grid": "choice", "grid_search": "choice",
}  # fmt: skip
_Row = tuple[Value, ...]
LARGEST_FILE = 64 << 20  # bytes
MOST_LINES = 1_000_000


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"`{name}` cannot be the name of a parameter", "use letters, digits and _ - . / @"
        )
    return name


def parse_assignment(text: str, folder: str = ".") -> tuple[tuple[str, ...], tuple[Domain, ...]]:
    """`lr=1e-3,1e-4` or `lr,bs=zip((1e-3,32),(1e-4,64))`: names, and a domain for each."""
    left, equals, right = text.partition("=")
    if not equals:
        raise UsageError(f"`{text}` is not a parameter", "write name=value,value")
    names = tuple(check_name(name.strip()) for name in left.split(","))
    if len(set(names)) != len(names):
        raise UsageError(f"`{left}` names a parameter twice")
    return names, parse(right, len(names), folder, names[0])


def parse(text: str, names: int, folder: str = ".", what: str = "it") -> tuple[Domain, ...]:
    """As many domains as there are names; several can only come from zip."""
    call = _CALL.fullmatch(text)
    try:
        if call and call[1] == "zip":
            return _zip(_items(call[2], rows=True), names)
        if names != 1:
            raise UsageError("several parameters need rows", "write a,b=zip((1,2),(3,4))")
        if call and _closes_at_end(text):
            return (_domain(call[1], call[2], folder),)
        return (choices(tuple(_values(text))),)
    except UsageError as error:
        raise UsageError(f"`{what}={text}`: {error.message}", error.hint) from None


def is_call(text: str) -> bool:
    """Whether a text of a file is meant as a domain; `lgo(1, 2)` is, and refused later."""
    return bool(_CALL.fullmatch(text))


def is_domain(text: str) -> bool:
    """Whether a word is one of our functions and nothing else."""
    call = _CALL.fullmatch(text)
    return call is not None and call[1] in _FUNCTIONS and _closes_at_end(text)


def _closes_at_end(text: str) -> bool:
    """Not `log(1,2),log(3,4)`, where the last parenthesis closes another call."""
    depth, quote = 0, ""
    for place, char in enumerate(text.strip()):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "()":
            depth += 1 if char == "(" else -1
            if not depth:
                return place == len(text.strip()) - 1
    return False


def _domain(function: str, inside: str, folder: str) -> Domain:
    if function == "choice":
        return choices(tuple(_values(inside)))
    if function == "file":
        return choices(tuple(_lines(inside, folder)))
    if function not in _FUNCTIONS:
        near = nearest(function, _FUNCTIONS, _OTHER_NAMES)
        raise UsageError(
            f"there is no `{function}(...)`",
            f"did you mean `{near}`?" if near else f"known: {', '.join(_FUNCTIONS)}; or quote it",
        )
    numbers = _numbers(function, inside)
    if function == "range":
        if len(numbers) not in (1, 2, 3):
            raise UsageError("range takes an end, or a start and an end, and perhaps a step")
        texts = [value.text for value in numbers]
        first, end = (texts[0], texts[1]) if len(texts) > 1 else ("0", texts[0])
        return steps(first, end, texts[2] if len(texts) == 3 else "1")
    if len(numbers) != 2:
        raise UsageError(f"{function} takes two numbers")
    a, b = (value.data for value in numbers)
    if function == "int":
        if not (isinstance(a, int) and isinstance(b, int)):
            raise UsageError("int takes two whole numbers")
        return whole(a, b)
    assert isinstance(a, (int, float)) and isinstance(b, (int, float))
    return continuous({"interval": "uniform"}.get(function, function), a, b)


def _numbers(function: str, inside: str) -> list[Value]:
    values = _values(inside)
    for value in values:
        if isinstance(value.data, bool) or not isinstance(value.data, (int, float)):
            raise UsageError(f"{function} takes numbers, not `{value.text}`")
    return values


def _zip(items: list[Value | _Row], names: int) -> tuple[Domain, ...]:
    rows: list[_Row] = []
    for item in items:
        row = (item,) if isinstance(item, Value) else item
        if len(row) != names:
            raise UsageError(
                f"a row of {len(row)} for {names} parameters", "write a,b=zip((1,2),(3,4))"
            )
        rows.append(row)
    return columns(rows)


def columns(rows: list[_Row]) -> tuple[Domain, ...]:
    if not rows:
        raise UsageError("zip needs at least one row", "write a,b=zip((1,2),(3,4))")
    return tuple(Choices(column) for column in zip(*rows, strict=True))


def _lines(inside: str, folder: str) -> list[Value]:
    """One value a line, as it stands there; only the line end goes, and lines without anything."""
    name = inside.strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"":
        name = name[1:-1]
    text = _content(name, (Path(folder) / name).expanduser())
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    values = [typed(line) for line in lines if line]
    if len(values) > MOST_LINES:
        raise UsageError(f"`{name}` has {len(values):,} lines, more than {MOST_LINES:,}")
    return values


def _content(name: str, path: Path) -> str:
    """A device or a pipe may have no end, so only files are read, and not all of any size."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"`{name}` is no regular file", "write its lines into one")
            data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot read `{name}`: {reason}") from None
    if len(data) > LARGEST_FILE:
        raise UsageError(f"`{name}` has more than {LARGEST_FILE >> 20} MB",
                         "give the program the file, and its lines by number")  # fmt: skip
    return data.decode("utf-8", "surrogateescape")


def _values(text: str) -> list[Value]:
    return [item for item in _items(text, rows=False) if isinstance(item, Value)]


def _items(text: str, rows: bool) -> list[Value | _Row]:
    return _Reader(text, rows).items("")


class _Reader:
    """Reads values between commas; remembers nothing but its place."""

    def __init__(self, text: str, rows: bool) -> None:
        self._text = text
        self._at = 0
        self._rows = rows
        self._depth = 0

    def items(self, closer: str) -> list[Value | _Row]:
        """Everything up to the closing bracket, or to the end."""
        found: list[Value | _Row] = []
        self._skip()
        if closer and self._peek() == closer:
            self._at += 1
            return found
        while True:
            found.append(self._item(closer))
            self._skip()
            char = self._peek()
            self._at += 1
            if char == closer:
                return found
            if char != ",":
                raise UsageError(
                    f"`{self._text}` is missing a `{closer}`"
                    if not char
                    else f"`{self._text[self._at - 1 :]}` follows a value without a comma",
                    "quote values that hold commas, brackets or quotes: 'a,b'",
                )

    def _item(self, closer: str) -> Value | _Row:
        self._skip()
        char, start = self._peek(), self._at
        if char and char in "'\"":
            return plain(self._quoted(char))
        if char == "(" and self._rows and not closer:
            self._at += 1
            return tuple(value for value in self.items(")") if isinstance(value, Value))
        if char == "[":
            self._at += 1
            self._depth += 1
            if self._depth > DEEPEST:
                raise UsageError("a list is nested too deeply", f"at most {DEEPEST} levels")
            data = [value.data for value in self.items("]") if isinstance(value, Value)]
            self._depth -= 1
            return Value(data, self._text[start : self._at])
        if char == "{":
            return self._table(start)
        while self._peek() not in ("", ",", closer):
            if self._peek() == "(":
                raise UsageError(
                    f"`{self._text[start:]}` has a parenthesis where a value should be",
                    "quote it: 'f(x)'",
                )
            self._at += 1
        bare = self._text[start : self._at].strip()
        if not bare:
            raise UsageError("a value is missing", "write '' for an empty text")
        return typed(bare)

    def _quoted(self, mark: str) -> str:
        made = []
        self._at += 1
        while (char := self._peek()) != mark:
            if not char:
                raise UsageError(f"`{self._text}` is missing a closing {mark}")
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in (mark, "\\"):
                self._at += 1
                char = self._peek()
            made.append(char)
            self._at += 1
        self._at += 1
        return "".join(made)

    def _table(self, start: int) -> Value:
        try:
            data, end = json.JSONDecoder(parse_constant=_no_constant).raw_decode(self._text, start)
        except (ValueError, RecursionError):
            raise UsageError(
                f"`{self._text[start:]}` is not JSON", 'write {"a": 1}, or quote it'
            ) from None
        self._at = end
        return Value(from_data(data).data, self._text[start:end])

    def _skip(self) -> None:
        while self._peek().isspace():
            self._at += 1

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]


def _no_constant(text: str) -> object:
    raise ValueError(text)
