"""A sweep from the words of a command line.

stoker sweep 'python t.py --lr {lr} --bs {bs}' lr=log(1e-5,1e-1) bs=16,32
stoker sweep lr=1e-3,1e-4 -- python t.py --lr {lr}
stoker sweep 'python t.py --lr {lr}' -p lr 1e-3 1e-4
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stoker.errors import UsageError
from stoker.sweeps.domains import Domain, choices
from stoker.sweeps.search_space import Axis, Space, make_space, zipped
from stoker.sweeps.spec import SweepSpec, make_spec
from stoker.sweeps.template import template
from stoker.sweeps.value_syntax import check_name, is_domain, parse, parse_assignment
from stoker.sweeps.values import typed

_ASSIGNMENT = re.compile(r"\+{0,2}[A-Za-z0-9_][A-Za-z0-9_.,/@-]*=", re.DOTALL)


def split_words(words: Sequence[str]) -> tuple[str, list[str]]:
    """One quoted command and the assignments behind it."""
    if not words:
        raise UsageError(
            "there is no command", "write: stoker sweep 'python t.py --lr {lr}' lr=1,2"
        )
    command, *assignments = words
    if _ASSIGNMENT.match(command) and not re.search(r"\s", command):
        raise UsageError(
            f"`{command}` is a parameter, and there is no command in front of it",
            "quote the command, or write it behind `--`",
        )
    for word in assignments:
        if not _ASSIGNMENT.match(word):
            raise UsageError(
                f"`{word}` is not a parameter", "quote the command, or write it behind `--`"
            )
    return command, assignments


def is_assignment(word: str) -> bool:
    """Whether a word says `lr=...`."""
    return bool(_ASSIGNMENT.match(word))


def from_words(
    command_words: Sequence[str],
    is_single_text: bool,
    assignments: Iterable[str] = (),
    parameters: Iterable[tuple[str, Sequence[str]]] = (),
    *,
    conditions: Mapping[str, str] | None = None,
    folder: str = ".",
    **options: Any,
) -> SweepSpec:
    """`parameters` are those of -p, whose values come as words; `conditions` are by parameter.

    All other options are those of `make_spec`.
    """
    command = template.Template(tuple(command_words), is_single_text)
    space = space_from(assignments, parameters, conditions or {}, folder)
    return make_spec(command, space, **options)


def space_from(
    assignments: Iterable[str],
    parameters: Iterable[tuple[str, Sequence[str]]] = (),
    conditions: Mapping[str, str] | None = None,
    folder: str = ".",
) -> Space:
    """Parameters in the order they were given, -p first."""
    conditions = conditions or {}
    axes: list[Axis] = []
    for name, words in parameters:
        if not words:
            raise UsageError(f"`-p {name}` has no values", f"write -p {name} 1 2 3")
        axes.append(
            Axis((check_name(name),), (_domain(name, words, folder),), conditions.get(name))
        )
    for text in assignments:
        names, made = parse_assignment(text, folder)
        when = next((conditions[name] for name in names if name in conditions), None)
        axes.append(zipped(names, made, when) if len(names) > 1 else Axis(names, made, when))
    if not axes:
        raise UsageError("a sweep needs a parameter", "write lr=1e-3,1e-4")
    known = [name for axis in axes for name in axis.names]
    for name in conditions:
        if name not in known:
            raise UsageError(f"there is no parameter `{name}` to put a condition on")
    return make_space([axes])


def _domain(name: str, words: Sequence[str], folder: str) -> Domain:
    """The values of one -p: words as they are, or one domain such as log(1e-5,1e-1)."""
    for word in words:
        if is_domain(word):
            if len(words) > 1:
                raise UsageError(f"`{word}` is not a value, and stands beside values",
                                 f"write -p {name} '{word}' alone")  # fmt: skip
            return parse(word, 1, folder, name)[0]
    return choices(tuple(typed(word) for word in words))
