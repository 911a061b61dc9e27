"""`ConfigManager`: the instances of a configuration of GPU Task Scheduler, and their folders.

Folder names match the original byte for byte. They are lossy: long values are cut and some
characters are removed, so two instances can have the same name. Then the first keeps it, and the
others get a suffix `id` that depends on their parameters only.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from stoker.compat.gpu_task_scheduler import folder_records as records
from stoker.record import Record

_IGNORED_KEYS = "ignored_keys_for_folder_name"
_IGNORED_CHARACTERS = "ignored_characters_for_folder_name"
_LATER_CHARACTERS = (" ", "[", "]")
_MAX_BYTES = 255  # of one path component, on common file systems
# The address in the default repr of an object differs between runs.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class ConfigManager:
    """Iterates over the instances of a configuration and their result folders."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._scheduler_config = self._parse_scheduler_config()
        self._global_config = config.get("global_config", {})
        self._test_config = self._parse_test_config()
        self._counter = 0
        self._folders: list[tuple[str, Identity]] | None = None

    def _parse_scheduler_config(self) -> dict[str, Any]:
        if "scheduler_config" not in self._config:
            raise ValueError("could not find scheduler_config in config")
        found: dict[str, Any] = self._config["scheduler_config"]
        if "gpu" not in found:
            raise ValueError("could not find gpu in scheduler_config")
        if len(found["gpu"]) < 1:
            raise ValueError("please specify at least one gpu in scheduler_config")
        for index, gpu in enumerate(found["gpu"]):
            if type(gpu) is list:
                found["gpu"][index] = ",".join(gpu)
            elif type(gpu) is not str:
                raise ValueError("gpu can only be a string or a list of strings")
        found.setdefault("force_rerun", False)
        found.setdefault("result_root_folder", os.path.abspath("results/"))
        found.setdefault("test_config_string_separator", ",")
        found.setdefault("test_config_string_indicator", "-")
        found.setdefault("test_config_string_inst_separator", "+")
        found.setdefault("temp_folder", os.path.abspath("temp/"))
        found.setdefault("log_file", "worker.log")
        found.setdefault("scheduler_log_file_path", "scheduler.log")
        found.setdefault("config_string_value_maxlen", 30)
        # These two options exist in the later version of the original only. A configuration that
        # uses one of them has folders that were named by that version.
        self._is_later = _IGNORED_KEYS in found or _IGNORED_CHARACTERS in found
        if self._is_later:
            found.setdefault(_IGNORED_KEYS, [])
            found.setdefault(_IGNORED_CHARACTERS, list(_LATER_CHARACTERS))
        os.makedirs(found["temp_folder"], exist_ok=True)
        return found

    def _parse_test_config(self) -> list[dict[Any, Any]]:
        if "test_config" not in self._config:
            return [{}]
        return [
            dict(zip(grid, values, strict=True))
            for grid in self._config["test_config"]
            for values in itertools.product(*grid.values())
        ]

    # -- the configuration ---------------------------------------------------------------------

    def get_all_scheduler_config(self) -> dict[str, Any]:
        return self._scheduler_config

    def get_all_global_config(self) -> dict[Any, Any]:
        found: dict[Any, Any] = self._global_config
        return found

    def get_all_test_config(self) -> list[dict[Any, Any]]:
        return self._test_config

    def get_all_test_config_in_string(self) -> str:
        """The grids as written in the configuration, not their instances."""
        rules = self._scheduler_config
        indicator = rules["test_config_string_indicator"]
        separator = rules["test_config_string_separator"]
        parts = []
        for grid in self._config["test_config"]:
            parts += [f"{key}{indicator}{grid[key]}{separator}" for key in sorted(grid)]
            parts.append(str(rules["test_config_string_inst_separator"]))
        text = "".join(parts)
        return text if self._is_later else text.replace(" ", "")

    def get_gpu_envs(self) -> list[dict[str, Any]]:
        return [
            {"name": f"gpu{slot}", "env": {"CUDA_VISIBLE_DEVICES": slot}} for slot in self._slots()
        ]

    def get_num_gpu(self) -> int:
        return len(self._slots())

    def _slots(self) -> list[str]:
        """The slots: one per entry. `0-3` and `jobs_per_gpu` are extensions of Stoker."""
        given = self._scheduler_config["gpu"]
        is_text = (
            isinstance(given, str) and not given.isdigit()
        )  # in a string of digits, each digit is an entry
        slots = _expanded(given) if is_text or any("-" in entry for entry in given) else list(given)
        return slots * int(self._scheduler_config.get("jobs_per_gpu", 1))

    # -- instances -----------------------------------------------------------------------------

    def get_num_left_config(self) -> int:
        return len(self._test_config) - self._counter

    def get_next_config(self, create_dir: bool = False) -> dict[str, Any]:
        if self._counter >= len(self._test_config):
            return {"config": None}
        params = self._test_config[self._counter]
        config = copy.deepcopy(self._global_config)
        config.update(params)
        found = {"config": config, "test_config_string": self._string(params)}
        if self._is_later:
            found["test_config_string_filtered"] = self._string(self._named(params))
        folder, _ = self._all_folders()[self._counter]
        found["work_dir"] = os.path.join(self._scheduler_config["result_root_folder"], folder)
        self._counter += 1
        return found

    def next_with_identity(self) -> tuple[dict[str, Any], Identity]:
        """The next instance, and the identity of its parameters."""
        _, instance_id = self._all_folders()[self._counter]
        return self.get_next_config(), instance_id

    def _all_folders(self) -> list[tuple[str, Identity]]:
        if self._folders is None:
            owners: dict[str, str] = {}
            self._folders = [
                self._folder(self._named(params), owners) for params in self._test_config
            ]
        return self._folders

    def _folder(self, params: dict[Any, Any], owners: dict[str, str]) -> tuple[str, Identity]:
        """The folder of an instance: the plain name unless another instance already has it."""
        rules = self._scheduler_config
        own = identity(params, self._characters)
        if not params:
            return "", own  # the root folder itself
        name = self._string(params)
        candidates = (name, *(with_id(name, digest, rules) for digest in (own.text, own.exact)))
        for candidate in candidates:
            folder = shortened(candidate, own.exact)
            path = os.path.join(rules["result_root_folder"], folder)
            is_free = owners.get(folder, own.exact) == own.exact
            if is_free and records.params_of(path) in (None, own.text):
                break
        owners[folder] = own.exact
        return folder, own

    def _named(self, params: dict[Any, Any]) -> dict[Any, Any]:
        """The parameters that are part of the folder name."""
        ignored = self._scheduler_config.get(_IGNORED_KEYS, ())
        return {key: value for key, value in params.items() if key not in ignored}

    @property
    def _characters(self) -> list[str]:
        return list(self._scheduler_config[_IGNORED_CHARACTERS]) if self._is_later else [" "]

    def _string(self, params: dict[Any, Any]) -> str:
        return config_string(params, self._scheduler_config, self._characters)


def _expanded(given: str | list[str]) -> list[str]:
    from stoker.compat.foreground.gpu_slots import (  # imports a lot, and is rarely needed
        expand_range,
        split_devices,
    )

    if isinstance(given, str):
        return split_devices(given.split())
    return [slot for entry in given for slot in expand_range(entry)]


# -- folder names ----------------------------------------------------------------------------------


class Identity(Record):
    """Digests of the parameters: `text` of their full strings, `exact` also of their types."""

    text: str
    exact: str


def config_string(
    params: Mapping[Any, Any], rules: Mapping[str, Any], characters: Iterable[str]
) -> str:
    """`method-GAN,num_packing-1,`: sorted keys, and a separator after each value."""
    indicator, separator = (
        rules["test_config_string_indicator"],
        rules["test_config_string_separator"],
    )
    max_length = rules["config_string_value_maxlen"]
    text = "".join(
        f"{key}{indicator}{str(params[key])[:max_length]}{separator}" for key in sorted(params)
    )
    for character in characters:
        text = text.replace(character, "")
    return text


def identity(params: Mapping[Any, Any], characters: Iterable[str]) -> Identity:
    """The identity of the parameters; the same in every run, stage and process."""
    removed = {*_LATER_CHARACTERS, *characters}
    text = [(str(key), _full_text(params[key], removed)) for key in sorted(params)]
    values = [params[key] for key in sorted(params)]
    exact = [(type(value).__name__, _ADDRESS.sub("", str(value))) for value in values]
    return Identity(_digest(text), _digest([text, exact]))


def _full_text(value: object, removed: set[str]) -> str:
    text = _ADDRESS.sub("", str(value))
    for character in removed:
        text = text.replace(character, "")
    return text


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def with_id(name: str, digest: str, rules: Mapping[str, Any]) -> str:
    """The name with an `id`, in the same key-value format, so that it can still be parsed."""
    indicator, separator = (
        rules["test_config_string_indicator"],
        rules["test_config_string_separator"],
    )
    return f"{name}id{indicator}{digest[:8]}{separator}"


def shortened(name: str, digest: str) -> str:
    """The name, with components that are too long for a file system cut."""
    return "/".join(_shortened(part, digest) for part in name.split("/"))


def _shortened(part: str, digest: str) -> str:
    data = os.fsencode(part)
    if len(data) <= _MAX_BYTES:
        return part
    end = f"~{digest[:8]}"
    return data[: _MAX_BYTES - len(end)].decode("utf-8", "ignore") + end
