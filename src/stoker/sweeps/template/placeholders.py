"""`{lr}` in a command: names only. No attributes, no indexing, no formats, so a template from
somebody else's file can reach nothing but the parameters. Braces are doubled to mean themselves.
"""

from __future__ import annotations

import re

from stoker.core.record import Record
from stoker.errors import UsageError

SPECIAL = ("params", "id", "dir", "gpu")
STYLES = ("", "hydra", "equals", "flags", "json", "file")
_NAME = re.compile(r"(?:\+{0,2}|~)[A-Za-z0-9_][A-Za-z0-9_./@-]*")
_BRACES = "write {{ and }} for braces that are not a placeholder"


class Placeholder(Record):
    name: str
    style: str = ""  # of {params:style}


Part = str | Placeholder


def parse(text: str) -> list[Part]:
    """
    >>> parse("python t.py --lr {lr} '{{}}'")
    ['python t.py --lr ', Hole(name='lr', style=''), " '{}'"]
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
            raise UsageError(f"a `}}` has no `{{` in `{text}`", _BRACES)
        else:
            end = text.find("}", at)
            if end < 0:
                raise UsageError(f"a `{{` is never closed in `{text}`", _BRACES)
            if literal:
                parts.append(literal)
            if literal.endswith("$"):
                raise UsageError(
                    f"`${text[at : end + 1]}` could be a variable of the shell or a parameter",
                    f"write ${{{{{text[at + 1 : end]}}}}} for the variable",
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
        raise UsageError(f"there is no `{{{inside}}}`", "known: " + _styles())
    if colon or "!" in inside or "[" in inside:
        raise UsageError(
            f"`{{{inside}}}` is more than a name", "placeholders take no formats: write {name}"
        )
    if not _NAME.fullmatch(inside):
        raise UsageError(f"`{{{inside}}}` is not a placeholder", _BRACES)
    return Placeholder(inside)


def _styles() -> str:
    return ", ".join(f"{{params:{style}}}" if style else "{params}" for style in STYLES)
