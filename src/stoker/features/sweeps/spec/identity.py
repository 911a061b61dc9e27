"""The identity of a trial: a hash of its command and parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from stoker.features.sweeps.spec.values import Point, key
from stoker.features.sweeps.template.template import Template
from stoker.text.commands.shell_words import CALL_MODULE, display


def identity(template: Template, point: Point) -> str:
    """Return 16 hex digits. 1e-3 equals 0.001, 1 equals 1.0, and parameter order is ignored."""
    params = {name: value.data for name, value in point.items()}
    text = key({"command": meaning(template), "shell": template.shell, "params": params})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def meaning(template: Template) -> list[str]:
    """The words that identify the command. A Python function is identified by its name only,
    because the path of its pickled call differs between submissions."""
    words = list(template.words)
    if len(words) > 4 and words[3] == CALL_MODULE:
        return words[3:5]
    return words


def template_of(templates: Iterable[Template], point: Point, known: str) -> Template | None:
    """The template whose identity with `point` is `known`, or None."""
    return next((one for one in templates if identity(one, point) == known), None)


def describe_template(template: Template) -> str:
    """The command for display: as typed, or `name(...)` for a Python function."""
    words = meaning(template)
    if words[:1] == [CALL_MODULE]:
        return f"{words[1].partition('@')[0]}(...)"
    return display(template.words, template.shell)
