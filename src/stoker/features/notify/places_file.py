"""The places of notifications in the settings file, which only its owner may read.

Changes keep the rest of the file with its comments (settings_file.py).
"""

from __future__ import annotations

import json
import os
from typing import Any

from stoker.client.settings_file import parse_tables, read_text, replace_file
from stoker.errors import Conflict, NoPermission, NotFound, UsageError
from stoker.features.notify.notify_settings import unknown_place
from stoker.features.notify.place_kinds import is_secret, kind_of
from stoker.features.notify.rules import DESKTOP, is_place_name
from stoker.settings import settings_path

_HEADER = "notify.places."


def load_places() -> dict[str, str]:
    """The address of each place by name; `desktop` is always there.

    Raises UsageError for a damaged file, and NoPermission if other users can read a secret in it.
    """
    path = settings_path()
    table = parse_tables(read_text(path), path)
    places = {name: str(place["url"]) for name, place in _places_of(table).items()}
    if any(is_secret(url) for url in places.values()):
        _check_private(path)
    return {DESKTOP: DESKTOP, **places}


def load_place(name: str) -> str:
    """The address of a place. Raises UsageError if there is none."""
    places = load_places()
    if name not in places:
        raise unknown_place(name, tuple(places))
    return places[name]


def add_place(name: str, url: str, *, replaces: bool = False, is_default: bool = False) -> bool:
    """Add a place to the settings file; returns whether another one was replaced.

    Raises UsageError, Conflict if the name is used, and NoPermission if the address is a secret and
    other users can read the file.
    """
    if not is_place_name(name) or name == DESKTOP:
        raise UsageError(
            f"`{name}` cannot be the name of a place",
            "use letters, digits, `-` and `_`; `desktop` is there already",
        )
    kind_of(url)
    path = settings_path()
    text = read_text(path)
    known = name in _places_of(parse_tables(text, path))
    if known and not replaces:
        raise Conflict(f"there is a place `{name}` already", "add --force to replace it")
    if is_secret(url) and os.path.exists(path):
        _check_private(path)
    wanted = parse_tables(text, path)
    table = f"[{_HEADER}{name}]\nurl = {json.dumps(url, ensure_ascii=False)}\n"
    place: dict[str, object] = {"url": url}
    if is_default:
        table, place = f"{table}default = true\n", {**place, "default": True}
    wanted.setdefault("notify", {}).setdefault("places", {})[name] = place
    base = _without(text, name, path) if known else text
    gap = "" if not base or base.endswith("\n\n") else "\n" if base.endswith("\n") else "\n\n"
    replace_file(path, f"{base}{gap}{table}", wanted)
    return known


def remove_place(name: str) -> None:
    """Remove a place from the settings file. Raises NotFound."""
    path = settings_path()
    text = read_text(path)
    wanted = parse_tables(text, path)
    places = _places_of(wanted)
    if name not in places:
        error = unknown_place(name, tuple(places))
        raise NotFound(error.message, "`stoker notify ls` shows the places")
    del places[name]
    replace_file(path, _without(text, name, path), wanted)


def _places_of(table: dict[str, Any]) -> dict[str, Any]:
    places = table.get("notify", {}).get("places", {})
    return places if isinstance(places, dict) else {}


def _check_private(path: str) -> None:
    """Raise NoPermission if another user can read the file: addresses are like passwords."""
    mode = os.stat(path).st_mode
    if mode & 0o077:
        raise NoPermission(
            f"the settings file `{path}` contains secrets and can be read by other users (mode"
            f" {mode & 0o777:o})",
            f"make it private: chmod 600 {path}",
        )


def _without(text: str, name: str, path: str) -> str:
    """The text without the table of a place, and the comments directly after its keys."""
    kept, is_inside, was_found = [], False, False
    for line in text.splitlines(keepends=True):
        bare = line.partition("#")[0].strip()
        if bare.startswith("["):
            is_inside = bare.replace(" ", "").replace('"', "") == f"[{_HEADER}{name}]"
            was_found = was_found or is_inside
        if not is_inside:
            kept.append(line)
    if not was_found:
        raise Conflict(
            f"the place `{name}` is not written as a table [{_HEADER}{name}]",
            f"edit the settings file: {path}",
        )
    return "".join(kept)
