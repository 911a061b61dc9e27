"""Filters as users type them: `--where "lr < 0.01 and `val/loss` < 1"`.

An expression (expressions.py) in which names may have dots (`metric.loss`) and, in backticks, any
characters. Errors have their place in the text, for the web UI.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from typing import NoReturn

from stoker.states import STATES
from stoker.text.filters.expressions import HINT, Expression, InvalidExpression
from stoker.text.suggestions import nearest

_PARTS = re.compile(
    r"""`(?P<quoted>[^`]*)` | (?P<dotted>[^\W\d]\w*(?:\.[^\W\d]\w*)+)
    | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | `""",
    re.VERBOSE | re.DOTALL,
)
_SPACE = str.maketrans("\n\r\t\f\v", "     ")
_PLAIN_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*", re.ASCII)
_WORDS = frozenset(
    ("and", "or", "not", "in", "is", "None", "True", "False", "if", "else", "lambda")
)


class FilterText:
    """A parsed filter. The constructor raises InvalidExpression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._stand_ins: dict[str, str] = {}
        plain = self._without_quotes(text.translate(_SPACE))
        try:
            self.expression = Expression(plain)
        except InvalidExpression as error:
            hint = error.hint or ""
            if hint == HINT:
                hint = f"{hint}; write names with other characters in `backticks`"
            raise InvalidExpression(
                self._as_typed(error.message, plain, error.at), hint, self._typed_place(error.at)
            ) from None
        self.names = {self.name(name): name for name in sorted(self.expression.names)}

    def name(self, identifier: str) -> str:
        """The name that a user typed, of an identifier in the expression."""
        return self._stand_ins.get(identifier, identifier)

    def place(self, node: ast.AST) -> tuple[int, int] | None:
        """Where a part of the expression is in the text."""
        return self._typed_place(self.expression.place(node))

    def place_of(self, name: str) -> tuple[int, int] | None:
        """Where a name first is in the text."""
        for node in ast.walk(self.expression.tree):
            if isinstance(node, ast.Name) and self.name(node.id) == name:
                return self.place(node)
        return None

    def find_columns(self, find: Callable[[str], str]) -> dict[str, str]:
        """The column of each identifier in the expression.

        `find` returns the column of a name or raises UsageError, which gets its place here.
        """
        from stoker.errors import UsageError

        found = {}
        for name, identifier in self.names.items():
            try:
                found[identifier] = find(name)
            except UsageError as error:
                raise InvalidExpression(error.message, error.hint, self.place_of(name)) from None
        return found

    # -- places --------------------------------------------------------------------------------

    def _without_quotes(self, text: str) -> str:
        """Replace names in backticks and with dots by identifiers; strings are not changed.

        `_starts` and `_ends` hold the place in `text` of each character of the result.
        """
        parts: list[str] = []
        self._starts: list[int] = []
        self._ends: list[int] = []

        def add(part: str, start: int, end: int | None = None) -> None:
            parts.append(part)
            for n in range(len(part)):
                self._starts.append(start + (0 if end is not None else n))
                self._ends.append(end if end is not None else start + n + 1)

        at = 0
        for found in _PARTS.finditer(text):
            add(text[at : found.start()], at)
            at = found.end()
            name = found["quoted"] if found["quoted"] is not None else found["dotted"]
            if found[0] == "`":
                raise InvalidExpression(
                    f"`{self.text}` has a backtick that is not closed",
                    "write names with other characters as `name`",
                    (found.start(), found.end()),
                )
            if name is None:
                add(found[0], found.start())
            else:
                add(f" {self._stand_in(name, text)} ", found.start(), found.end())
        add(text[at:], at)
        return "".join(parts)

    def _stand_in(self, name: str, text: str) -> str:
        for known, other in self._stand_ins.items():
            if other == name:
                return known
        made = f"quoted_{len(self._stand_ins)}_"
        while made in text:
            made += "_"
        self._stand_ins[made] = name
        return made

    def _typed_place(self, at: tuple[int, int] | None) -> tuple[int, int] | None:
        if at is None:
            return None
        start, end = at
        if start >= len(self._starts):
            return len(self.text), len(self.text)
        return self._starts[start], self._ends[max(start, min(end, len(self._ends)) - 1)]

    def _as_typed(self, message: str, plain: str, at: tuple[int, int] | None) -> str:
        """The message about the expression, in terms of the text that the user typed."""
        message = message.replace(f"`{plain}`", f"`{self.text}`")
        if at is not None and at[0] < len(self._starts):
            start = self._starts[at[0]]
            message = message.replace(f"at character {at[0] + 1}", f"at character {start + 1}")
        for made, name in self._stand_ins.items():
            message = message.replace(f"unexpected `{made}`", f"unexpected `{name}`")
        return message


def unknown_column(
    name: str, known: Iterable[str], others: dict[str, str] | None = None
) -> NoReturn:
    """Raise InvalidExpression with the most similar column, or with all of them."""
    known = list(known)
    near = nearest(name, known, others)
    hint = f"did you mean `{near}`?" if near else f"columns: {', '.join(known[:40])}"
    if name in STATES:
        hint = f"text needs quotes: state == '{name}'"
    raise InvalidExpression(f"unknown column `{name}`", hint)


def as_typed(name: str) -> str:
    """A column as it must be written in a filter: in backticks if it needs them."""
    if _PLAIN_NAME.fullmatch(name) and not _WORDS.intersection(name.split(".")):
        return name
    return f"`{name}`"
