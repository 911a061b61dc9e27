"""Folder names of GPU Task Scheduler, byte for byte, and who a folder belongs to.

The name loses things: values are cut at a length, characters are left out. So two instances can
have one name; then the first keeps it, and the others get an `id` behind it that depends on nothing
but their own parameters.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from stoker.core.record import Record

HEAD_CHARACTERS = (" ", "[", "]")
_MOST_BYTES = 255  # of one part of a path, on every usual file system
# Where an object lies in memory says nothing about what it is.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Identity(Record):
    """Which parameters: `text` as the name shows them, only whole; `exact` with their types."""

    text: str
    exact: str


def config_string(
    params: Mapping[Any, Any], rules: Mapping[str, Any], characters: Iterable[str]
) -> str:
    """`method-GAN,num_packing-1,`: keys in order, and a separator after each."""
    indicator, separator = (
        rules["test_config_string_indicator"],
        rules["test_config_string_separator"],
    )
    most = rules["config_string_value_maxlen"]
    text = "".join(
        f"{key}{indicator}{str(params[key])[:most]}{separator}" for key in sorted(params)
    )
    for character in characters:
        text = text.replace(character, "")
    return text


def identity(params: Mapping[Any, Any], characters: Iterable[str]) -> Identity:
    """The same in every run, stage and process that has the same parameters."""
    left_out = {*HEAD_CHARACTERS, *characters}
    text = [(str(key), _whole(params[key], left_out)) for key in sorted(params)]
    values = [params[key] for key in sorted(params)]
    exact = [(type(value).__name__, _ADDRESS.sub("", str(value))) for value in values]
    return Identity(_digest(text), _digest([text, exact]))


def _whole(value: object, left_out: set[str]) -> str:
    text = _ADDRESS.sub("", str(value))
    for character in left_out:
        text = text.replace(character, "")
    return text


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def with_id(name: str, digest: str, rules: Mapping[str, Any]) -> str:
    """Still keys and values, for whoever takes names apart."""
    indicator, separator = (
        rules["test_config_string_indicator"],
        rules["test_config_string_separator"],
    )
    return f"{name}id{indicator}{digest[:8]}{separator}"


def fitting(name: str, digest: str) -> str:
    """A name that the file system takes; nearly always the name itself."""
    return "/".join(_fitting(part, digest) for part in name.split("/"))


def _fitting(part: str, digest: str) -> str:
    data = os.fsencode(part)
    if len(data) <= _MOST_BYTES:
        return part
    end = f"~{digest[:8]}"
    return data[: _MOST_BYTES - len(end)].decode("utf-8", "ignore") + end
