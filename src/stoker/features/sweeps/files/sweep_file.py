"""Load a sweep file of any known format."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from stoker.errors import NotFound, UsageError
from stoker.features.sweeps.files import (
    gpu_task_scheduler_file,
    keys,
    toml_file,
    wandb_file,
    yaml_text,
)
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
        return yaml_text.parse(text, f"`{what}`")
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
