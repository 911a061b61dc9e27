"""Parse the arguments of `stoker sweep` into a SweepSpec.

stoker sweep 'python t.py --lr {lr} --bs {bs}' lr=log(1e-5,1e-1) bs=16,32
stoker sweep lr=1e-3,1e-4 -- python t.py --lr {lr}
stoker sweep 'python t.py --lr {lr}' -p lr 1e-3 1e-4
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stoker.errors import UsageError
from stoker.features.sweeps.spec.domains import Domain, choices
from stoker.features.sweeps.spec.search_space import Axis, Space, make_space, zipped
from stoker.features.sweeps.spec.spec import SweepSpec, make_spec
from stoker.features.sweeps.spec.value_syntax import check_name, is_domain, parse, parse_assignment
from stoker.features.sweeps.spec.values import typed
from stoker.features.sweeps.template import template
from stoker.text.suggestions import nearest

_ASSIGNMENT = re.compile(r"\+{0,2}[A-Za-z0-9_][A-Za-z0-9_.,/@-]*=", re.DOTALL)


def split_words(words: Sequence[str]) -> tuple[str, list[str]]:
    """Split `words` into the quoted command and the assignments that follow it.

    Raises UsageError if the command is missing or a later word is not an assignment.
    """
    if not words:
        raise UsageError(
            "the command is missing", "write: stoker sweep 'python t.py --lr {lr}' lr=1,2"
        )
    command, *assignments = words
    if _ASSIGNMENT.match(command) and not re.search(r"\s", command):
        raise UsageError(
            f"`{command}` is a parameter, but the command is missing",
            "quote the command, or write it after `--`",
        )
    for word in assignments:
        if not _ASSIGNMENT.match(word):
            raise UsageError(
                f"`{word}` is not a parameter", "quote the command, or write it after `--`"
            )
    return command, assignments


def is_assignment(word: str) -> bool:
    """Whether a word has the form `lr=...`."""
    return bool(_ASSIGNMENT.match(word))


def from_words(
    command_words: Sequence[str],
    is_single_text: bool,
    assignments: Iterable[str] = (),
    parameters: Iterable[tuple[str, Sequence[str]]] = (),
    *,
    conditions: Mapping[str, str] | None = None,
    **options: Any,
) -> SweepSpec:
    """Return the spec of a sweep given on the command line.

    `parameters` holds the names and values of -p, `conditions` maps parameter names to conditions.
    `options` are passed to `make_spec`.
    """
    command = template.Template(tuple(command_words), is_single_text)
    space = space_from(assignments, parameters, conditions)
    return make_spec(command, space, **options)


def space_from(
    assignments: Iterable[str],
    parameters: Iterable[tuple[str, Sequence[str]]] = (),
    conditions: Mapping[str, str] | None = None,
    folder: str = ".",
) -> Space:
    """Return the space of these parameters in the order given; those of -p come first."""
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
            near = nearest(name, known)
            hint = f"did you mean `{near}`?" if near else f"parameters: {', '.join(known)}"
            raise UsageError(f"`--when` refers to `{name}`, which is not a parameter", hint)
    return make_space([axes])


def _domain(name: str, words: Sequence[str], folder: str) -> Domain:
    """Return the domain of one -p: plain values, or a single function such as log(1e-5,1e-1)."""
    for word in words:
        if is_domain(word):
            if len(words) > 1:
                raise UsageError(
                    f"`{word}` cannot be combined with other values of `{name}`",
                    f"write only: -p {name} '{word}'",
                )
            return parse(word, 1, folder, name)[0]
    return choices(tuple(typed(word) for word in words))
