"""When two trials are the same trial: equal parameters and an equal command."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from stoker.core.formats.shell_words import CALL_MODULE, display
from stoker.sweeps.template.template import Template
from stoker.sweeps.values import Point, key


def identity(template: Template, point: Point) -> str:
    """16 hex digits; 1e-3 is 0.001 and 1 is 1.0, in whatever order the parameters come."""
    params = {name: value.data for name, value in point.items()}
    text = key({"command": meaning(template), "shell": template.shell, "params": params})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def meaning(template: Template) -> list[str]:
    """The words that say what is run. A function is its name, wherever its call was put."""
    words = list(template.words)
    if len(words) > 4 and words[3] == CALL_MODULE:
        return words[3:5]
    return words


def template_of(templates: Iterable[Template], point: Point, known: str) -> Template | None:
    """The one of these that a trial was made for; None when it is none of them."""
    return next((one for one in templates if identity(one, point) == known), None)


def described(template: Template) -> str:
    """The command for people: as they typed it, and a function by its name."""
    said = meaning(template)
    if said[:1] == [CALL_MODULE]:
        return f"{said[1].partition('@')[0]}(...)"
    return display(template.words, template.shell)
