"""Load a sweep file of any known format."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoker.errors import NotFound, Unavailable, UsageError
from stoker.features.sweeps.files import gpu_task_scheduler_file, keys, toml_file, wandb_file
from stoker.features.sweeps.spec.spec import SweepSpec

_MAX_BYTES = 64 << 20  # bytes; longer lists of values belong in a file read with file(...)


def load(path: str | Path) -> SweepSpec:
    """Read a sweep file. The suffix decides the syntax, the keys decide the format:
    Stoker's own, W&B's, or GPU Task Scheduler's.

    Raises NotFound if the file does not exist and UsageError if it is not a valid sweep.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".py":
        raise UsageError(
            f"`{path}` is a program, not a sweep file", "write the parameters into a .toml file"
        )
    if suffix not in (".toml", ".yaml", ".yml", ".json"):
        raise UsageError(f"`{path}` is not a sweep file", "use .toml, .yaml or .json")
    given = keys.table(_parse(_read(path), suffix, str(path)), str(path))
    return from_table(given, str(path.parent), is_toml=suffix == ".toml")


def from_table(
    given: Mapping[str, object], folder: str = ".", *, is_toml: bool = True
) -> SweepSpec:
    if "test_config" in given or "scheduler_config" in given:
        return gpu_task_scheduler_file.from_config(given)
    if "parameters" in given or ("program" in given and "params" not in given):
        return wandb_file.from_table(given, is_toml=is_toml)
    return toml_file.from_table(given, folder, is_toml=is_toml)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"the file `{path}` does not exist") from None
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
    if len(content) > _MAX_BYTES:
        raise UsageError(f"`{path}` is larger than {_MAX_BYTES >> 20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"`{path}` is not UTF-8 text") from None


def _parse(text: str, suffix: str, what: str) -> object:
    if suffix in (".yaml", ".yml"):
        return parse_yaml(text, f"`{what}`")
    try:
        if suffix == ".toml":
            return tomllib.loads(text)
        return json.loads(text, object_pairs_hook=_without_duplicates)
    except RecursionError:
        raise UsageError(f"`{what}` is nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"`{what}` is not valid {suffix[1:].upper()}: {error}") from None


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key `{duplicate}`")
    return table


# YAML 1.2, in which `1e-3` is a number and `no` is a string. PyYAML follows YAML 1.1, where `1e-3`
# is a string, `no` is false and `12:30:45` is 45045. Duplicate keys are errors here; in PyYAML the
# last one wins silently.

_TAG = "tag:yaml.org,2002:"
_RULES = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
    ("merge", r"<<", "<"),
)


def parse_yaml(text: str, what: str = "the file") -> object:
    """Return the data of a YAML text. Raises UsageError if it is not valid, and Unavailable if
    PyYAML is not installed."""
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        raise Unavailable(
            "reading YAML needs the package pyyaml", "pip install 'stoker[yaml]'"
        ) from None
    try:
        return yaml.load(text, Loader=_loader(yaml))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise UsageError(f"{what} is not valid YAML: {problem}{place}") from None
    except RecursionError:
        raise UsageError(f"{what} is nested too deeply") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # `!!bool x`, `!!int [x]`
        raise UsageError(f"{what} is not valid YAML: {error}") from None


def _loader(yaml: Any) -> Any:
    """Return a safe loader class with the YAML 1.2 rules; PyYAML is imported only on demand."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  drop those of YAML 1.1

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value:
                if not isinstance(key.value, str):
                    raise yaml.constructor.ConstructorError(
                        None, None, "a key must not be a list or a table", key.start_mark
                    )
                if key.value in seen and key.tag != _TAG + "merge":
                    raise yaml.constructor.ConstructorError(
                        None, None, f"duplicate key `{key.value}`", key.start_mark
                    )
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    for kind, pattern, first in _RULES:
        Loader.add_implicit_resolver(_TAG + kind, re.compile(f"(?:{pattern})$"), list(first))
    Loader.add_constructor(_TAG + "int", _whole)
    Loader.add_constructor(_TAG + "float", _real)
    return Loader


def _whole(loader: Any, node: Any) -> int:
    text = loader.construct_scalar(node)
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


def _real(loader: Any, node: Any) -> float:
    text = loader.construct_scalar(node).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))
