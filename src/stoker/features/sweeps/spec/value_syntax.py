"""Parse the value syntax of the command line and of strings in sweep files.

    a,b,c              these values; quote commas and parentheses: 'a,b',"c(d)"
    choice(a,b,c)      the same
    [1,2],[3,4]        lists are values too
    range(5)           0 1 2 3 4, like Python: range(a, b), range(a, b, step), also steps of 0.1
    linspace(0,1,5)    five numbers at equal distances, both bounds included
    geomspace(1,16,5)  five numbers with equal ratios: 1 2 4 8 16
    logspace(-4,-1,4)  powers of ten, as in NumPy: 1e-4 1e-3 1e-2 1e-1
    int(1,8)           integers, both bounds included
    interval(0,1)      real numbers, uniformly distributed
    log(1e-5,1e-1)     real numbers, log-uniformly distributed
    normal(0,1)        normally distributed: mean, standard deviation
    file(path)         one value per line, unchanged; empty lines are skipped
    zip((a,1),(b,2))   rows for several parameters that advance together: opt,bs=zip(...)

A quoted value is always a string: '1' is not the number 1.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from pathlib import Path

from stoker.errors import UsageError
from stoker.features.sweeps.spec import other_names
from stoker.features.sweeps.spec.domains import Choices, Domain, choices, continuous, steps, whole
from stoker.features.sweeps.spec.values import MAX_DEPTH, Value, from_data, plain, typed
from stoker.text.suggestions import nearest

_CALL = re.compile(r"\s*([A-Za-z_]+)\((.*)\)\s*", re.DOTALL)
_ANY_CALL = re.compile(r"\s*[A-Za-z_][A-Za-z_0-9.]*\(.*\)\s*", re.DOTALL)
_QUALIFIED_CALL = re.compile(r"(?:[A-Za-z_][A-Za-z_0-9]*\.)*([A-Za-z_][A-Za-z_0-9]*)\s*\(")
_NAME = re.compile(r"(?:\+{0,2}|~)[A-Za-z_0-9][A-Za-z0-9_./@-]*")  # Hydra: +db.user, ~opt
_SPACES = ("linspace", "geomspace", "logspace")
_FUNCTIONS = ("choice", "range", *_SPACES, "int", "interval", "log", "normal", "file", "zip")
_Row = tuple[Value, ...]
MAX_FILE_BYTES = 64 << 20  # bytes
MAX_LINES = 1_000_000


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"`{name}` is not a valid parameter name", "use letters, digits and _ - . / @"
        )
    return name


def parse_assignment(text: str, folder: str = ".") -> tuple[tuple[str, ...], tuple[Domain, ...]]:
    """Parse `lr=1e-3,1e-4` or `lr,bs=zip((1e-3,32),(1e-4,64))` into names and their domains."""
    left, equals, right = text.partition("=")
    if not equals:
        raise UsageError(f"`{text}` is not a parameter", "write name=value,value")
    names = tuple(check_name(name.strip()) for name in left.split(","))
    if len(set(names)) != len(names):
        raise UsageError(f"`{left}` contains a parameter twice")
    return names, parse(right, len(names), folder, names[0])


def parse(text: str, names: int, folder: str = ".", what: str = "it") -> tuple[Domain, ...]:
    """Return one domain per name; only zip gives more than one. `what` is the name for errors."""
    call = _CALL.fullmatch(text)
    try:
        if call and call[1] == "zip":
            return _zip(_items(call[2], rows=True), names)
        if names != 1:
            raise UsageError("several parameters need zip(...)", "write a,b=zip((1,2),(3,4))")
        if call and _closes_at_end(text):
            return (_domain(call[1], call[2], folder),)
        return (choices(tuple(_values(text))),)
    except UsageError as error:
        raise UsageError(f"`{what}={text}`: {error.message}", error.hint) from None


def is_call(text: str) -> bool:
    """Whether a string in a file has the form of a function call, known or not.

    >>> [is_call(text) for text in ("lgo(1, 2)", "tune.uniform(0, 1)", "adam", "adam (fast)")]
    [True, True, False, False]
    """
    return bool(_ANY_CALL.fullmatch(text))


def is_domain(text: str) -> bool:
    """Whether a word is a call of one of the known functions and nothing else."""
    call = _CALL.fullmatch(text)
    return call is not None and call[1] in _FUNCTIONS and _closes_at_end(text)


def _closes_at_end(text: str) -> bool:
    """Whether the last character closes the first parenthesis; false for `log(1,2),log(3,4)`."""
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
        near = _nearest_function(function)
        raise UsageError(
            f"unknown function `{function}(...)`",
            f"did you mean `{near}`?"
            if near
            else f"known: {', '.join(_FUNCTIONS)}; quote it if it is a plain value",
        )
    numbers = _numbers(function, inside)
    if function == "range":
        if len(numbers) not in (1, 2, 3):
            raise UsageError(
                "range takes one to three numbers",
                "write range(end), range(start, end) or range(start, end, step)",
            )
        texts = [value.text for value in numbers]
        first, end = (texts[0], texts[1]) if len(texts) > 1 else ("0", texts[0])
        return steps(first, end, texts[2] if len(texts) == 3 else "1")
    if function in _SPACES:
        return choices(tuple(_spaced(function, numbers)))
    if len(numbers) != 2:
        raise UsageError(f"{function} takes two numbers, not {len(numbers)}")
    a, b = (value.data for value in numbers)
    if function == "int":
        if not (isinstance(a, int) and isinstance(b, int)):
            raise UsageError("int takes two integers")
        return whole(a, b)
    assert isinstance(a, (int, float)) and isinstance(b, (int, float))
    return continuous({"interval": "uniform"}.get(function, function), a, b)


def _spaced(function: str, numbers: list[Value]) -> list[Value]:
    """The values of linspace, geomspace and logspace, with twelve significant digits."""
    data = [float(str(value.data)) for value in numbers]
    if len(data) != 3 or not 2 <= data[2] <= MAX_LINES or data[2] % 1:
        raise UsageError(
            f"{function} takes two bounds and a number of values", f"write {function}(1, 3, 5)"
        )
    a, b, count = data[0], data[1], int(data[2])
    if function == "logspace" and 0 < min(a, b) < 1:
        raise UsageError(
            "logspace takes exponents, as in NumPy",
            f"for these bounds: geomspace({', '.join(value.text for value in numbers)})",
        )
    if function == "geomspace":
        if min(a, b) <= 0:
            raise UsageError("geomspace takes bounds above 0", "for exponents: logspace(-5, -1, 5)")
        a, b = math.log(a), math.log(b)
    places = [a + (b - a) * place / (count - 1) for place in range(count)]
    try:
        if function != "linspace":
            places = [10**x if function == "logspace" else math.exp(x) for x in places]
    except OverflowError:
        raise UsageError(f"{function} has a value that is too large") from None
    return [typed(f"{x:.12g}") for x in places]


def _nearest_function(name: str) -> str | None:
    return nearest(name.lower(), _FUNCTIONS, other_names.FUNCTIONS)


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
                f"a row of zip has {len(row)} values for {names} parameters",
                "write a,b=zip((1,2),(3,4))",
            )
        rows.append(row)
    return columns(rows)


def columns(rows: list[_Row]) -> tuple[Domain, ...]:
    if not rows:
        raise UsageError("zip needs at least one row", "write a,b=zip((1,2),(3,4))")
    return tuple(Choices(column) for column in zip(*rows, strict=True))


def _lines(inside: str, folder: str) -> list[Value]:
    """Read one value per line, without the line end; empty lines are skipped."""
    name = inside.strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"":
        name = name[1:-1]
    text = _content(name, (Path(folder) / name).expanduser())
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    values = [typed(line) for line in lines if line]
    if len(values) > MAX_LINES:
        raise UsageError(f"`{name}` has {len(values):,} lines; the limit is {MAX_LINES:,}")
    return values


def _content(name: str, path: Path) -> str:
    """Read a regular file of limited size; a device or a pipe could block or never end."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(
                    f"`{name}` is not a regular file", "write its lines into a regular file"
                )
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot read `{name}`: {reason}") from None
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(
            f"`{name}` is larger than {MAX_FILE_BYTES >> 20} MiB",
            "let the program read the file, and sweep over line numbers",
        )
    return data.decode("utf-8", "surrogateescape")


def _values(text: str) -> list[Value]:
    return [item for item in _items(text, rows=False) if isinstance(item, Value)]


def _items(text: str, rows: bool) -> list[Value | _Row]:
    return _Reader(text, rows).items("")


class _Reader:
    """A recursive-descent parser for comma-separated values."""

    def __init__(self, text: str, rows: bool) -> None:
        self._text = text
        self._at = 0
        self._rows = rows
        self._depth = 0

    def items(self, closer: str) -> list[Value | _Row]:
        """Parse items up to `closer`, or to the end of the text if it is empty."""
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
                    "quote values that contain commas, brackets or quotes: 'a,b'",
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
            if self._depth > MAX_DEPTH:
                raise UsageError("a list is nested too deeply", f"at most {MAX_DEPTH} levels")
            data = [value.data for value in self.items("]") if isinstance(value, Value)]
            self._depth -= 1
            return Value(data, self._text[start : self._at])
        if char == "{":
            return self._table(start)
        while self._peek() not in ("", ",", closer):
            if self._peek() == "(":
                raise self._unexpected_parenthesis(start)
            self._at += 2 if self._text.startswith("\\,", self._at) else 1
        bare = self._text[start : self._at].strip().replace("\\,", ",")  # Hydra: a comma
        if not bare:
            raise UsageError("a value is missing", "write '' for an empty string")
        return typed(bare)

    def _unexpected_parenthesis(self, start: int) -> UsageError:
        """The error for `tune.uniform(0,1)`, `log(1,2),3` and the like."""
        rest = self._text[start:]
        call = _QUALIFIED_CALL.match(rest)
        if call is not None and call[1] in _FUNCTIONS and "." not in call[0]:
            hint = f"`{call[1]}(...)` cannot be combined with other values; or quote it: 'f(x)'"
        elif call is not None and (near := _nearest_function(call[1])) is not None:
            hint = f"did you mean `{near}(...)`? If it is a plain value, quote it: 'f(x)'"
        else:
            hint = "quote it: 'f(x)'"
        return UsageError(f"`{rest}` has a parenthesis where a value is expected", hint)

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
