"""Read configurations of GPU Task Scheduler: a list of grids whose union is the sweep.

    {"scheduler_config": {...}, "global_config": {"epochs": 200},
     "test_config": [{"method": ["GAN"], "packing": [1]}, {"method": ["WGAN"], "packing": [2, 3]}]}

`scheduler_config` describes where and how to run and is left to the caller. In a file, the key
`command` gives the command to run; the original library has no such key.
"""

from __future__ import annotations

from collections.abc import Mapping

from stoker.errors import UsageError
from stoker.features.sweeps.files import keys, toml_file
from stoker.features.sweeps.spec.domains import choices
from stoker.features.sweeps.spec.search_space import Space, axis, make_space
from stoker.features.sweeps.spec.spec import SweepSpec, make_spec, refuse_unknown
from stoker.features.sweeps.spec.values import from_data
from stoker.features.sweeps.template.template import Template

_KEYS = ("scheduler_config", "global_config", "test_config", "command", "name")


def space_from(config: Mapping[str, object]) -> Space:
    """Return the space in the original order: grid after grid, the last parameter fastest."""
    refuse_unknown(config, _KEYS)
    fixed = keys.table(config.get("global_config", {}), "global_config")
    constants = [(n, from_data(v, f"global_config.{n}")) for n, v in fixed.items()]
    grids = []
    for number, given in enumerate(keys.listed(config.get("test_config", [{}]), "test_config")):
        place = f"test_config[{number}]"
        axes = []
        for name, values in keys.table(given, place).items():
            listed = keys.listed(values, f"{place}.{name}")
            if not listed:
                raise UsageError(f"`{place}.{name}` has no values")
            made = tuple(from_data(value, f"{place}.{name}") for value in listed)
            axes.append(axis(name, choices(made)))
        grids.append(axes)
    return make_space(grids, constants)


def from_config(config: Mapping[str, object], command: Template | None = None) -> SweepSpec:
    if command is None:
        if "command" not in config:
            raise UsageError(
                "the configuration has no command", 'add "command": "python train.py {params}"'
            )
        command = toml_file.command(config["command"])
    name = keys.text(config["name"], "name") if "name" in config else None
    return make_spec(command, space_from(config), method="grid", name=name, lenient=True)
