"""Completion of filters while they are typed: names of columns, operators and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from stoker.record import Record
from stoker.text.filters.filter_text import as_typed

_TOKEN = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?) | (?P<quoted>`[^`]*`?)
    | (?P<number>\d[\w.]*) | (?P<word>[^\W\d][\w.]*) | (?P<op>[=<>!]+) | (?P<mark>[(),\[\]])
    | (?P<other>\S)""",
    re.VERBOSE | re.DOTALL,
)
_COMPARISONS = (
    ("==", "equal"),
    ("!=", "not equal"),
    ("<", "less"),
    (">", "greater"),
    ("in", "one of several: in ('a', 'b')"),
)
_LINKS = (("and", "both conditions"), ("or", "one of the conditions"))
_VALUE_WORDS = ("None", "True", "False")
_LINK_WORDS = ("and", "or", "not", "(")
_MOST = 50
_MAX_NOTE = 120


class Suggestion(Record):
    text: str  # what is inserted
    note: str  # what it means


class Completion(Record):
    """Suggestions that replace the characters `start` to `end` of the text."""

    start: int
    end: int
    suggestions: list[Suggestion]


def complete(
    text: str,
    at: int,
    columns: Sequence[tuple[str, str]],
    values_of: Callable[[str], Sequence[tuple[object, str]]],
) -> Completion:
    """What can be typed at a place of a filter.

    `columns`: (name, description); `values_of` returns (value, description) for a column.

    >>> complete("sta", 3, [("state", ""), ("gpus", "")], lambda name: ()).suggestions[0].text
    'state'
    """
    at = max(0, min(at, len(text)))
    tokens = [one for one in _TOKEN.finditer(text) if one.start() < at]
    current = tokens[-1] if tokens and _is_open(tokens[-1], at) else None
    before = tokens[:-1] if current is not None else tokens
    start = current.start() if current is not None else at
    typed = text[start:at]
    end = current.end() if current is not None and current.end() > at else at
    if current is not None and current.lastgroup in ("string", "number"):
        end = current.end()
    column = _compared(before)
    if column is not None:
        found = [Suggestion(_literal(value), note) for value, note in values_of(column)]
        return Completion(start, end, _matching(found, typed.strip("'\"")))
    if current is not None and current.lastgroup == "string":
        return Completion(start, end, [])
    if _is_complete(before):
        words = _LINKS if _is_condition(before) else _COMPARISONS
        found = [Suggestion(word, note) for word, note in words]
        return Completion(start, end, [one for one in found if one.text.startswith(typed)])
    found = [Suggestion(as_typed(name), note[:_MAX_NOTE]) for name, note in columns]
    return Completion(start, end, _matching(found, typed.strip("`")))


def _is_open(token: re.Match[str], at: int) -> bool:
    """Whether the cursor is inside or directly after a token that can grow."""
    if token.lastgroup == "string":
        is_closed = len(token[0]) > 1 and token[0][-1] == token[0][0]
        return at < token.end() or not is_closed
    if token.lastgroup == "quoted":
        return at < token.end() or not (len(token[0]) > 1 and token[0].endswith("`"))
    return token.end() >= at and token.lastgroup in ("word", "number")


def _compared(tokens: list[re.Match[str]]) -> str | None:
    """The column whose value comes next: after `state ==` or `state in ('a',`."""
    place = len(tokens) - 1
    while place >= 0 and (
        tokens[place].lastgroup in ("string", "number") or tokens[place][0] in ",("
    ):
        place -= 1
    is_list = place < len(tokens) - 1
    if place < 1:
        return None
    word = tokens[place][0]
    if is_list != (word == "in") or (tokens[place].lastgroup != "op" and word != "in"):
        return None
    if is_list and tokens[-1].lastgroup in ("string", "number"):
        return None  # a comma comes next
    name = tokens[place - 1]
    if name[0] == "not" and place > 1:
        name = tokens[place - 2]
    if name.lastgroup not in ("word", "quoted") or name[0] in _LINK_WORDS:
        return None
    return name[0].strip("`")


def _is_complete(tokens: list[re.Match[str]]) -> bool:
    """Whether the text so far ends with a value or a name, so that an operator comes next."""
    if not tokens:
        return False
    last = tokens[-1]
    if last.lastgroup == "word":
        return last[0] not in ("and", "or", "not", "in", "is")
    return last.lastgroup in ("string", "number", "quoted") or last[0] in ")]"


def _is_condition(tokens: list[re.Match[str]]) -> bool:
    """Whether the last condition has an operator, so that `and` comes next."""
    for token in reversed(tokens):
        if token[0] in ("and", "or", "not"):
            return False
        if token.lastgroup == "op" or token[0] in ("in", "is"):
            return True
    return False


def _literal(value: object) -> str:
    is_plain = value is None or isinstance(value, (str, int, float))
    return repr(value if is_plain else str(value))


def _matching(found: list[Suggestion], typed: str) -> list[Suggestion]:
    """Those that begin with the typed text, then those that contain it, in any case."""
    wanted = typed.lower()
    bare = [(one, one.text.strip("`'\"").lower()) for one in found]
    first = [one for one, text in bare if text.startswith(wanted)]
    rest = [one for one, text in bare if wanted in text and not text.startswith(wanted)]
    return [*first, *rest][:_MOST]
