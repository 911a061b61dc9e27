"""Read Stoker's own sweep files: TOML, or the same tables in JSON or YAML.

    command = "python train.py --lr {lr} --opt {opt} --wd {wd}"   # or a list of words
    method = "tpe"
    trials = 40
    metric = { name = "val_loss", goal = "min" }
    [resources]
    gpus = 1
    [params]
    lr = "log(1e-5, 1e-1)"                                # the syntax of the command line
    opt = ["sgd", "adam"]                                 # a list of values
    wd = { values = [0, 1e-4], when = "opt == 'adam'" }   # also value, domain, min and max
    epochs = 10                                           # a single value
    [[zip]]                                               # a and b advance together
    a = [1, 2]
    b = [3, 4]
    [[include]]                                           # another grid; the sweep is the union
    opt = ["lion"]
    lr = [1e-4]
    [stop]
    kind = "median"
    after_step = 5

`zip = [["a", "b"]]` does the same for parameters listed in [params].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from stoker.errors import UsageError
from stoker.features.sweeps.files import keys
from stoker.features.sweeps.spec import other_names
from stoker.features.sweeps.spec.domains import Domain, choices, continuous, whole
from stoker.features.sweeps.spec.search_space import Axis, axis, make_space, zipped
from stoker.features.sweeps.spec.spec import RESOURCES, SweepSpec, make_spec, refuse_unknown
from stoker.features.sweeps.spec.value_syntax import is_call, parse
from stoker.features.sweeps.spec.values import from_data
from stoker.features.sweeps.template import template
from stoker.features.sweeps.template.template import Template
from stoker.text.suggestions import nearest

T = TypeVar("T")
_KEYS_WORDS = (
    "command method trials metric seed max_parallel max_fails name description resources params "
    "include stop constants zip lenient"
)
_KEYS = tuple(_KEYS_WORDS.split())
_PARAMETER = ("value", "values", "domain", "min", "max", "log", "step", "when")


def from_table(
    given: Mapping[str, object], folder: str = ".", *, is_toml: bool = True
) -> SweepSpec:
    """Return the spec for the tables of a file; paths in file(...) are relative to `folder`.

    `is_toml`: hints are written in TOML, otherwise in JSON, which is also valid YAML.
    """
    for key in given:
        _check_key(str(key), is_toml)
    if "command" not in given:
        example = "python t.py --lr {lr}"
        hint = f'add command = "{example}"' if is_toml else f'add "command": "{example}"'
        raise UsageError("the file has no command", hint)
    constants = keys.table(given.get("constants", {}), "constants")
    params = keys.table(given.get("params", {}), "params")
    for name in constants:
        if name in params:
            raise UsageError(
                f"`{name}` is both a parameter and a constant", "remove one of the two"
            )
    further = keys.listed(given.get("include", []), "include")
    grids = (
        [_grid(params, given.get("zip", []), "params", folder)] if params or "zip" in given else []
    )
    for number, grid in enumerate(further):
        place = f"include[{number}]"
        grids.append(_grid(keys.table(grid, place), [], place, folder))
    if not grids:
        hint = "add a table [params]" if is_toml else 'add "params": {"lr": [0.1, 0.01]}'
        raise UsageError("the file has no parameters", hint)
    return make_spec(
        command(given["command"]),
        make_space(grids, [(n, from_data(v, f"constants.{n}")) for n, v in constants.items()]),
        method=_maybe(given, "method", keys.text),
        trials=_maybe(given, "trials", keys.whole),
        seed=_maybe(given, "seed", keys.whole),
        name=_maybe(given, "name", keys.text),
        metric=keys.metric(given["metric"]) if "metric" in given else None,
        early_stop=_maybe(given, "stop", keys.table),
        resources=_maybe(given, "resources", keys.table),
        max_parallel=_maybe(given, "max_parallel", keys.whole),
        max_fails=_maybe(given, "max_fails", keys.whole),
        lenient=given.get("lenient", False) is True,
    )


def _check_key(key: str, is_toml: bool) -> None:
    """Raise UsageError for an unknown key. Options of a job belong into the table `resources`."""
    option = nearest(key, RESOURCES, other_names.RESOURCES)
    if option is not None and nearest(key, _KEYS, other_names.FILE_KEYS) is None:
        table = "[resources]" if is_toml else "`resources`"
        raise UsageError(f"unknown key `{key}`", f"did you mean `{option}` in {table}?")
    refuse_unknown([key], _KEYS, meanings=other_names.FILE_KEYS)


def command(given: object) -> Template:
    """A string is shell text, a list is the words of a command."""
    if isinstance(given, str):
        return template.shell(given)
    words = keys.listed(given, "command")
    return template.argv([keys.text(word, "command") for word in words])


def _grid(params: Mapping[str, object], zips: object, place: str, folder: str) -> list[Axis]:
    """Axes in file order; zipped parameters take the place of the first of them."""
    single = {name: _axis(name, given, place, folder) for name, given in params.items()}
    made = dict(single)
    zip_tables = []
    for number, entry in enumerate(keys.listed(zips, "zip")):
        if isinstance(entry, Mapping):
            rows = keys.table(entry, f"zip[{number}]")
            columns = [_axis(name, given, f"zip[{number}]", folder) for name, given in rows.items()]
            zip_tables.append(_zipped(columns))
            continue
        names = [keys.text(name, f"zip[{number}]") for name in keys.listed(entry, "zip")]
        refuse_unknown(names, single, "params.", what="parameter")
        for name in names:
            if name not in made or names.count(name) > 1:
                raise UsageError(f"`zip` contains `{name}` twice")
        made[names[0]] = _zipped([made.pop(name) for name in names])
    in_order = sorted(made.values(), key=lambda a: list(single).index(a.names[0]))
    return [*in_order, *zip_tables]


def _zipped(axes: list[Axis]) -> Axis:
    if not axes:
        raise UsageError("an entry of `zip` is empty", 'write zip = [["a", "b"]]')
    conditions = {axis.when for axis in axes}
    if len(conditions) > 1:
        raise UsageError(
            f"`{axes[0].names[0]}` is zipped with parameters that have other conditions",
            "give all of them the same `when`",
        )
    return zipped(
        [name for axis in axes for name in axis.names],
        [domain for axis in axes for domain in axis.domains],
        axes[0].when,
    )


def _axis(name: str, given: object, place: str, folder: str) -> Axis:
    where = f"{place}.{name}"
    if isinstance(given, list):
        return axis(name, _values(given, where))
    if not isinstance(given, Mapping):
        return axis(name, _single(given, where, folder))
    refuse_unknown(given, _PARAMETER, f"{where}.", other_names.PARAMETER_KEYS)
    when = keys.text(given["when"], f"{where}.when") if "when" in given else None
    return axis(name, _described(keys.table(given, where), where, folder), when)


def _single(given: object, where: str, folder: str) -> Domain:
    if isinstance(given, str) and is_call(given):
        return parse(given, 1, folder, where)[0]
    return choices((from_data(given, where),))


def _described(given: dict[str, object], where: str, folder: str) -> Domain:
    ways = [way for way in ("value", "values", "domain", "min") if way in given]
    if len(ways) != 1:
        raise UsageError(
            f"`{where}` has {' and '.join(ways) or 'no values'}",
            "use exactly one of value, values, domain, or min and max",
        )
    if "value" in given:
        return choices((from_data(given["value"], where),))
    if "values" in given:
        return _values(keys.listed(given["values"], f"{where}.values"), where)
    if "domain" in given:
        return parse(keys.text(given["domain"], f"{where}.domain"), 1, folder, where)[0]
    if "max" not in given:
        raise UsageError(f"`{where}` has a min but no max", "add max")
    low, high = (keys.number(given[key], f"{where}.{key}") for key in ("min", "max"))
    log = given.get("log", False) is True
    if type(low) is int and type(high) is int and "step" not in given:
        return whole(low, high, log)
    step = keys.number(given["step"], f"{where}.step") if "step" in given else None
    return continuous("log" if log else "uniform", low, high, step)


def _values(given: list[object], where: str) -> Domain:
    if not given:
        raise UsageError(f"`{where}` has no values")
    return choices(tuple(from_data(value, where) for value in given))


def _maybe(given: Mapping[str, object], key: str, read: Callable[[object, str], T]) -> T | None:
    return read(given[key], key) if key in given else None
