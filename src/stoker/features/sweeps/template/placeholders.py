"""Parse placeholders such as `{lr}` in a command.

Only names are allowed: no attributes, indexing or formats, so that a template from an untrusted
file can use nothing but the parameters. `{{` and `}}` are literal braces.
"""

from __future__ import annotations

import re

from stoker.errors import UsageError
from stoker.record import Record
from stoker.text.suggestions import nearest

SPECIAL = ("params", "id", "dir", "gpu")
STYLES = ("", "hydra", "equals", "flags", "json", "file")
_NAME = re.compile(r"(?:\+{0,2}|~)[A-Za-z0-9_][A-Za-z0-9_./@-]*")
_BRACES = "write {{ and }} for literal braces"


class Placeholder(Record):
    name: str
    style: str = ""  # of {params:style}


Part = str | Placeholder


def parse(text: str) -> list[Part]:
    """Split a text into literal parts and placeholders.

    >>> parse("python t.py --lr {lr} '{{}}'")
    ['python t.py --lr ', Placeholder(name='lr', style=''), " '{}'"]
    """
    parts: list[Part] = []
    literal = ""
    at = 0
    while at < len(text):
        char = text[at]
        if char not in "{}":
            literal += char
            at += 1
        elif text[at : at + 2] == char * 2:
            literal += char
            at += 2
        elif char == "}":
            raise UsageError(f"`{text}` has a `}}` without a `{{`", _BRACES)
        else:
            end = text.find("}", at)
            if end < 0:
                raise UsageError(f"`{text}` has a `{{` without a `}}`", _BRACES)
            if literal:
                parts.append(literal)
            if literal.endswith("$"):
                raise UsageError(
                    f"`${text[at : end + 1]}` could be a shell variable or a parameter",
                    f"write ${{{{{text[at + 1 : end]}}}}} for the shell variable",
                )
            parts.append(_hole(text[at + 1 : end]))
            literal = ""
            at = end + 1
    return [*parts, literal] if literal else parts


def _hole(inside: str) -> Placeholder:
    name, colon, style = inside.partition(":")
    if name == "params" and style in STYLES and (style or not colon):
        return Placeholder(name, style)
    if name == "params" and _NAME.fullmatch(style):
        near = nearest(style, [known for known in STYLES if known])
        hint = f"did you mean `{{params:{near}}}`?" if near else "known: " + _styles()
        raise UsageError(f"unknown style `{{{inside}}}`", hint)
    if colon or "!" in inside or "[" in inside:
        raise UsageError(
            f"`{{{inside}}}` is not a plain name", "placeholders have no formats: write {name}"
        )
    if not _NAME.fullmatch(inside):
        raise UsageError(f"`{{{inside}}}` is not a placeholder", _BRACES)
    return Placeholder(inside)


def _styles() -> str:
    return ", ".join(f"{{params:{style}}}" if style else "{params}" for style in STYLES)
