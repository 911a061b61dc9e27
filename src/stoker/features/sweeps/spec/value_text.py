"""The values of a parameter as text: the inverse of value_syntax.py, for forms that edit a sweep.

A domain that the syntax cannot express, such as one with probabilities, gets a text that is easy
to read and that the parser refuses, so that an edited one is never taken for another domain.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from decimal import Decimal

from stoker.client.submit.job_options import BY_KEY
from stoker.client.submit.spec_options import options_of_spec
from stoker.engine.model import JobSpec
from stoker.engine.snapshot_context import original_folder
from stoker.errors import UsageError
from stoker.features.sweeps.spec.domains import Choices, Continuous, Domain, Steps, Whole
from stoker.features.sweeps.spec.search_space import Axis, Space, make_space
from stoker.features.sweeps.spec.spec import SweepSpec
from stoker.features.sweeps.spec.value_syntax import parse
from stoker.features.sweeps.spec.values import Value, key
from stoker.text.commands.shell_words import quote

_SHAPES = {"uniform": "interval", "log": "log", "normal": "normal", "lognormal": "lognormal"}


def axis_key(axis: Axis) -> str:
    """The name of a parameter in a form: `lr`, or `lr,bs` for parameters that advance together."""
    return ",".join(axis.names)


def axis_text(axis: Axis) -> str:
    """The values of an axis, as they are written after `name=`."""
    if len(axis.domains) == 1:
        return domain_text(axis.domains[0])
    assert axis.size is not None
    rows = [axis.values(index) for index in range(axis.size)]
    return f"zip({','.join('(' + ','.join(map(value_text, row)) + ')' for row in rows)})"


def domain_text(domain: Domain) -> str:
    """
    >>> from stoker.features.sweeps.spec.domains import steps, whole
    >>> domain_text(steps("0", "1", "0.25")), domain_text(whole(1, 8))
    ('range(0,1.00,0.25)', 'int(1,8)')
    """
    if isinstance(domain, Choices):
        values = [value_text(value) for value in domain.values]
        if domain.weights:
            pairs = zip(values, domain.weights, strict=True)
            return f"weighted({','.join(f'{value}:{weight:g}' for value, weight in pairs)})"
        return ",".join(values)
    if isinstance(domain, Steps):
        end = Decimal(domain.first) + domain.length * Decimal(domain.step)
        return f"range({domain.first},{end},{domain.step})"
    if isinstance(domain, Whole):
        return f"{'logint' if domain.log else 'int'}({domain.low},{domain.high})"
    return _continuous(domain)


def _continuous(domain: Continuous) -> str:
    step = "" if domain.step is None else f",step={domain.step!r}"
    return f"{_SHAPES[domain.shape]}({domain.a!r},{domain.b!r}{step})"


def value_text(value: Value) -> str:
    """One value; quoted only if it would be read as another one otherwise."""
    if _means(value.text, value.data):
        return value.text
    if not isinstance(value.data, str):
        return json.dumps(value.data, ensure_ascii=False)
    escaped = value.data.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _means(text: str, data: object) -> bool:
    """Whether the text, alone and in a list, is read as this value."""
    try:
        (alone,), (listed,) = parse(text, 1), parse(f"{text},0", 1)
    except UsageError:
        return False
    return all(
        isinstance(domain, Choices) and key(domain.value(0).data) == key(data)
        for domain in (alone, listed)
    ) and (alone.size, listed.size) == (1, 2)


def edited_space(
    space: Space, edited: Sequence[Axis], kept: Collection[str] | None = None
) -> Space:
    """Return the space with `edited` parameters in place of those of the same names.

    Other parameters, conditions and [[include]] tables stay. `kept` has the keys (`axis_key`) of
    the parameters that stay besides the edited ones; None: all. Raises UsageError as `make_space`.
    """
    names = {name for axis in edited for name in axis.names}
    by_names = {frozenset(axis.names): axis for axis in edited}
    axes: list[Axis] = []
    for axis in space.grids[0]:
        new = by_names.pop(frozenset(axis.names), None)
        if new is not None:
            axes.append(new._replace(when=new.when or axis.when))
        elif not names & set(axis.names) and (kept is None or axis_key(axis) in kept):
            axes.append(axis)
    constants = [
        (name, value)
        for name, value in space.constants
        if name not in names and (kept is None or name in kept)
    ]
    return make_space([[*axes, *by_names.values()], *space.grids[1:]], constants)


# Options of single jobs, and those that a shell gives anyway.
_LEFT_OUT = ("cwd", "hold", "notify")


def command_text(name: str, given: SweepSpec, base: JobSpec) -> str | None:
    """`cd FOLDER && stoker sweep ...`; None for a sweep that needs a sweep file."""
    if len(given.space.grids) != 1 or given.points or given.earlier:
        return None
    words = ["stoker", "sweep", "--name", quote(name)]
    if given.method != "grid":
        words += ["--method", given.method]
    if given.total_trials is not None:
        words += ["--trials", str(given.total_trials)]
    if given.seed is not None and given.method != "grid":
        words += ["--seed", str(given.seed)]
    if given.metric is not None:
        words += ["--metric", quote(f"{given.metric.name}:{given.metric.goal}")]
    if given.early_stop is not None:
        options = [f"{key}={value}" for key, value in given.early_stop.items() if key != "kind"]
        words += ["--early-stop", quote(",".join([str(given.early_stop["kind"]), *options]))]
    for option, number in (
        ("--max-parallel", given.max_parallel),
        ("--max-fails", given.max_fails),
    ):
        words += [] if number is None else [option, str(number)]
    for axis in given.space.grids[0]:
        if axis.when is not None:
            words += ["--when", quote(f"{axis_key(axis)}: {axis.when}")]
    words += ["--lenient"] if given.lenient else []
    words += _job_flags(base)
    words += [quote(f"{axis_key(axis)}={axis_text(axis)}") for axis in given.space.grids[0]]
    words += [quote(f"{key}={value_text(value)}") for key, value in given.space.constants]
    template = given.template
    if template.shell:
        words.insert(2, quote(template.words[0]))
    else:
        words += ["--", *map(quote, template.words)]
    return f"cd {quote(original_folder(base.context))} && {' '.join(words)}"


def _job_flags(base: JobSpec) -> list[str]:
    words = []
    for name, value in options_of_spec(base).items():
        if name in _LEFT_OUT or (name == "on" and value == "local"):
            continue
        option = BY_KEY[name]
        flag = option.flags.split()[-1]
        if value is True:
            words.append(flag)
        elif option.repeats and isinstance(value, list):
            for one in value:
                words += [flag, quote(str(one))]
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words.append(f"{flag}={quote(text)}")
    return words
