"""The folder names of GPU Task Scheduler, byte for byte, and the identity of instances.

Names are lossy: long values are cut and some characters are removed, so two instances can have the
same name. Then the first keeps it, and the others get a suffix `id` that depends on their
parameters only.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from stoker.core.record import Record

HEAD_CHARACTERS = (" ", "[", "]")
_MAX_BYTES = 255  # of one path component, on common file systems
# The address in the default repr of an object differs between runs.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


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
    removed = {*HEAD_CHARACTERS, *characters}
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
