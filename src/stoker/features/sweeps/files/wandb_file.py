"""Read W&B sweep files unchanged.

Nested `parameters` become names with dots: `optimizer: {parameters: {lr: ...}}` is optimizer.lr.
`bayes` is run as TPE, `run_cap` is the number of trials. Keys that only the W&B service uses
(project, entity, controller, job, scheduler, ...) are accepted and ignored.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping

from stoker.errors import UsageError
from stoker.features.sweeps.files import keys
from stoker.features.sweeps.spec import names, other_names
from stoker.features.sweeps.spec.domains import Domain, choices, continuous
from stoker.features.sweeps.spec.domains import whole as whole_numbers
from stoker.features.sweeps.spec.search_space import Axis, axis, make_space
from stoker.features.sweeps.spec.spec import (
    Metric,
    SweepSpec,
    guessed_goal,
    make_spec,
    refuse_unknown,
)
from stoker.features.sweeps.spec.values import MAX_DEPTH, from_data
from stoker.features.sweeps.template import template
from stoker.features.sweeps.template.template import Template
from stoker.text.suggestions import nearest

_KEYS_WORDS = (
    "program command method metric parameters name description project entity run_cap "
    "early_terminate apiVersion kind controller job image_uri launch scheduler imputation resources"
)
_KEYS = tuple(_KEYS_WORDS.split())
_METHODS = {"grid": "grid", "random": "random", "bayes": "tpe"}
_DEFAULT = ("${env}", "${interpreter}", "${program}", "${args}")
_ARGUMENTS = {
    "args": "{params:equals}",
    "args_no_hyphens": "{params:hydra}",
    "args_no_boolean_flags": "{params:flags}",
    "args_json": "{params:json}",
    "args_json_file": "{params:file}",
}
_MACRO = re.compile(r"\$\{([^{}]*)\}")
_BRACED = re.compile(r"(?<![${])\{([^{}]+)\}")
_SPREAD = ("min", "max")
_BELL = ("mu", "sigma")
# For each distribution: its keys, other than `distribution`.
_DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "constant": ("value",),
    "categorical": ("values",),
    "categorical_w_probabilities": ("values", "probabilities"),
    "int_uniform": _SPREAD,
    "uniform": _SPREAD,
    "q_uniform": (*_SPREAD, "q"),
    "log_uniform": _SPREAD,
    "log_uniform_values": _SPREAD,
    "q_log_uniform": (*_SPREAD, "q"),
    "q_log_uniform_values": (*_SPREAD, "q"),
    "inv_log_uniform": _SPREAD,
    "inv_log_uniform_values": _SPREAD,
    "normal": _BELL,
    "q_normal": (*_BELL, "q"),
    "log_normal": _BELL,
    "q_log_normal": (*_BELL, "q"),
}
_ALL_KEYS = (
    "value",
    "values",
    "min",
    "max",
    "distribution",
    "probabilities",
    "q",
    "mu",
    "sigma",
    "parameters",
)


def from_table(
    given: Mapping[str, object],
    environment: Mapping[str, str] | None = None,
    *,
    is_toml: bool = False,
) -> SweepSpec:
    """Return the spec of a W&B file. ${envvar:NAME} is looked up in `environment`, by default the
    environment of this process. `is_toml`: hints are written in TOML."""
    refuse_unknown(given, _KEYS, meanings=other_names.WANDB_KEYS)
    method = keys.text(given.get("method", "grid"), "method")
    refuse_unknown([method], _METHODS, meanings=other_names.WANDB_METHODS, what="method")
    parameters = keys.table(given.get("parameters", {}), "parameters")
    axes = list(_axes(parameters, "parameters", "", is_toml=is_toml))
    if not axes:
        raise UsageError("the file has no parameters", "add a table `parameters`")
    environment = os.environ if environment is None else environment
    space = make_space([axes])
    name = given.get("name")
    return make_spec(
        _command(given, environment, space.names),
        space,
        method=_METHODS[method],
        trials=keys.whole(given["run_cap"], "run_cap") if "run_cap" in given else None,
        name=None if name is None else _name(str(name)),
        metric=_metric(given["metric"]) if given.get("metric") else None,
        early_stop=_stop(given["early_terminate"]) if given.get("early_terminate") else None,
        resources=keys.table(given["resources"], "resources") if "resources" in given else None,
        lenient=True,
    )


def _metric(value: object) -> Metric:
    """W&B minimizes a metric without a goal; a name that suggests otherwise is refused."""
    if isinstance(value, Mapping) and "goal" not in value:
        if guessed_goal(str(value.get("name"))) == "max":
            raise UsageError(
                f"`metric.goal` is missing, and W&B would minimize `{value['name']}`",
                "add goal: maximize or goal: minimize",
            )
        value = {**value, "goal": "minimize"}
    return keys.metric(value)


def _name(title: str) -> str | None:
    """W&B allows free text as a name; return a valid sweep name made from it, or None."""
    made = re.sub(r"[^A-Za-z0-9._-]+", "-", title).strip("-._")[:60]
    try:
        return names.check(made)
    except UsageError:
        return None


def _axes(
    given: Mapping[str, object], place: str, prefix: str, depth: int = 0, *, is_toml: bool
) -> Iterator[Axis]:
    if depth > MAX_DEPTH:
        raise UsageError("`parameters` is nested too deeply", f"at most {MAX_DEPTH} levels")
    for name, described in given.items():
        where = f"{place}.{name}"
        if not isinstance(described, Mapping):
            raise UsageError(
                f"`{where}` is not a table",
                "did you mean [params]? `parameters` is the W&B format:"
                f" {name} = {{ values = [1, 2] }}"
                if is_toml
                else "did you mean `params`? `parameters` is the W&B format:"
                f' "{name}": {{"values": [1, 2]}}',
            )
        parameter = keys.table(described, where)
        if isinstance(parameter.get("parameters"), Mapping):
            refuse_unknown(parameter, ("parameters",), f"{where}.")
            nested = keys.table(parameter["parameters"], where)
            yield from _axes(
                nested, f"{where}.parameters", f"{prefix}{name}.", depth + 1, is_toml=is_toml
            )
        else:
            yield axis(f"{prefix}{name}", _domain(parameter, where))


def _domain(given: dict[str, object], where: str) -> Domain:
    refuse_unknown(given, _ALL_KEYS, f"{where}.", other_names.WANDB_PARAMETER_KEYS)
    distribution = given["distribution"] if "distribution" in given else _guess(given, where)
    kind = keys.text(distribution, f"{where}.distribution")
    refuse_unknown(
        [kind],
        _DISTRIBUTIONS,
        f"{where}.distribution: ",
        other_names.WANDB_DISTRIBUTIONS,
        what="distribution",
    )
    if kind == "categorical" and "probabilities" in given:
        kind = "categorical_w_probabilities"
    for key in given:
        if key != "distribution" and key not in _DISTRIBUTIONS[kind]:
            raise UsageError(
                f"`{where}.{key}` is not a key of the distribution {kind}",
                f"its keys: {', '.join(_DISTRIBUTIONS[kind])}",
            )
    for key in _DISTRIBUTIONS[kind]:
        if key not in given and key not in ("q", "mu", "sigma"):
            raise UsageError(f"`{where}` has distribution {kind} but no {key}", f"add {key}")
    return _made(kind, given, where)


def _guess(given: Mapping[str, object], where: str) -> str:
    if "values" in given:
        return "categorical"
    if "value" in given:
        return "constant"
    if "min" in given and "max" in given:
        ends = given["min"], given["max"]
        return "int_uniform" if all(type(end) is int for end in ends) else "uniform"
    raise UsageError(f"`{where}` has no values", "add value, values, or min and max")


def _made(kind: str, given: dict[str, object], where: str) -> Domain:
    if kind == "constant":
        return choices((from_data(given["value"], where),))
    if kind.startswith("categorical"):
        values = keys.listed(given["values"], f"{where}.values")
        weights: list[float] = []
        if "probabilities" in given:
            listed = keys.listed(given["probabilities"], f"{where}.probabilities")
            weights = [float(keys.number(p, f"{where}.probabilities")) for p in listed]
        try:
            return choices(tuple(from_data(value, where) for value in values), tuple(weights))
        except UsageError as error:
            raise UsageError(f"`{where}`: {error.message}", error.hint) from None
    if kind == "int_uniform":
        low, high = (keys.whole(given[key], f"{where}.{key}") for key in _SPREAD)
        return whole_numbers(low, high)
    step = None
    if kind.startswith("q_"):
        step = keys.number(given.get("q", 1), f"{where}.q")
        kind = kind[2:]
    if kind in ("normal", "log_normal"):
        mu = keys.number(given.get("mu", 0), f"{where}.mu")
        sigma = keys.number(given.get("sigma", 1), f"{where}.sigma")
        return continuous(kind.replace("_", ""), mu, sigma, step)
    ends = [float(keys.number(given[key], f"{where}.{key}")) for key in _SPREAD]
    a, b = _ends(kind, ends[0], ends[1])
    return continuous("uniform" if kind == "uniform" else "log", a, b, step)


def _ends(kind: str, low: float, high: float) -> tuple[float, float]:
    """The bounds of the values. Without `_values`, W&B gives exponents of e; inverse
    distributions give those of 1/x."""
    if kind == "log_uniform":
        return math.exp(low), math.exp(high)
    if kind == "inv_log_uniform":
        return math.exp(-high), math.exp(-low)
    return low, high


def _stop(given: object) -> dict[str, object]:
    stop = keys.table(given, "early_terminate")
    known = ("type", "min_iter", "max_iter", "s", "eta", "strict")
    refuse_unknown(stop, known, "early_terminate.")
    if stop.get("type") != "hyperband":
        raise UsageError(
            f"`early_terminate.type` is `{stop.get('type')}`, which W&B does not have",
            "write type: hyperband",
        )
    factor = max(2, round(keys.number(stop.get("eta", 3), "early_terminate.eta")))
    made: dict[str, object] = {"kind": "hyperband", "factor": factor}
    if "max_iter" in stop:
        most = keys.whole(stop["max_iter"], "early_terminate.max_iter")
        rungs = keys.whole(stop.get("s", 1), "early_terminate.s")
        made |= {"min_step": max(1, most // factor**rungs), "max_step": max(1, most)}
    if "min_iter" in stop:
        made["min_step"] = keys.whole(stop["min_iter"], "early_terminate.min_iter")
    return made


def _command(
    given: Mapping[str, object], environment: Mapping[str, str], parameters: Iterable[str]
) -> Template:
    known = set(parameters)
    command = given.get("command", list(_DEFAULT))
    words = [command] if isinstance(command, str) else keys.listed(command, "command")
    if isinstance(command, str):
        words = list(command.split())
    for word in words:
        for name in _BRACED.findall(str(word)):
            if name in known:
                raise UsageError(
                    f"a W&B file has no placeholder `{{{name}}}` in `command`",
                    "write ${args} for all parameters, or use a TOML sweep file, which supports "
                    "placeholders",
                )
    program = str(given["program"]) if "program" in given else None
    made = [_word(str(word), program, environment) for word in words]
    return template.argv(word for word in made if word is not None)


def _word(word: str, program: str | None, environment: Mapping[str, str]) -> str | None:
    whole = _MACRO.fullmatch(word)
    if whole and whole[1] in _ARGUMENTS:
        return _ARGUMENTS[whole[1]]
    made, end = "", 0
    for found in _MACRO.finditer(word):
        made += _literal(word[end : found.start()])
        made += _literal(_expanded(found[1], program, environment))
        end = found.end()
    return made + _literal(word[end:])


def _expanded(macro: str, program: str | None, environment: Mapping[str, str]) -> str:
    if macro == "env":
        return "/usr/bin/env"
    if macro == "interpreter":
        return "python"
    if macro == "program":
        if program is None:
            raise UsageError(
                "the file has no `program` to run",
                "add `program: train.py`, or `command: [python, train.py, '${args}']`, to the file",
            )
        return program
    if macro.startswith("envvar:"):
        name = macro.removeprefix("envvar:")
        if name not in environment:
            raise UsageError(f"the environment variable {name} in ${{{macro}}} is not set")
        return environment[name]
    if macro in _ARGUMENTS:
        raise UsageError(f"`${{{macro}}}` is part of a longer word", "put it on a line of its own")
    known = ("env", "interpreter", "program", *_ARGUMENTS, "envvar:NAME")
    near = nearest(macro, known)
    hint = f"did you mean `${{{near}}}`?" if near else f"known: {', '.join(known)}"
    raise UsageError(f"unknown macro `${{{macro}}}` in `command`", hint)


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
