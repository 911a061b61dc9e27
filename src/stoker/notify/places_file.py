"""The places of notifications in the settings file, which only its owner may read.

Changes keep the rest of the file with its comments; if the result does not parse to exactly the
intended settings, the file stays as it is.
"""

from __future__ import annotations

import json
import os
import tomllib

from stoker.core.notify.notify_settings import unknown_place
from stoker.core.notify.rules import DESKTOP, is_place_name
from stoker.errors import Conflict, NoPermission, NotFound, TryLater, UsageError
from stoker.notify.place_kinds import is_secret, kind_of
from stoker.settings import settings_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HEADER = "notify.places."


def load_places() -> dict[str, str]:
    """The address of each place by name; `desktop` is always there.

    Raises UsageError for a damaged file, and NoPermission if other users can read a secret in it.
    """
    path = settings_path()
    table = _tables(_read(path), path)
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
    text = _read(path)
    known = name in _places_of(_tables(text, path))
    if known and not replaces:
        raise Conflict(f"there is a place `{name}` already", "add --force to replace it")
    if is_secret(url) and os.path.exists(path):
        _check_private(path)
    wanted = _tables(text, path)
    table = f"[{_HEADER}{name}]\nurl = {json.dumps(url, ensure_ascii=False)}\n"
    place: dict[str, object] = {"url": url}
    if is_default:
        table, place = f"{table}default = true\n", {**place, "default": True}
    wanted.setdefault("notify", {}).setdefault("places", {})[name] = place
    base = _without(text, name, path) if known else text
    gap = "" if not base or base.endswith("\n\n") else "\n" if base.endswith("\n") else "\n\n"
    _write(path, f"{base}{gap}{table}", wanted)
    return known


def remove_place(name: str) -> None:
    """Remove a place from the settings file. Raises NotFound."""
    path = settings_path()
    text = _read(path)
    wanted = _tables(text, path)
    places = _places_of(wanted)
    if name not in places:
        error = unknown_place(name, tuple(places))
        raise NotFound(error.message, "`stoker notify ls` shows the places")
    del places[name]
    _write(path, _without(text, name, path), wanted)


def _places_of(table: dict[str, Any]) -> dict[str, Any]:
    places = table.get("notify", {}).get("places", {})
    return places if isinstance(places, dict) else {}


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the settings file `{path}`: {error}") from None


def _tables(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"the settings file `{path}` is not valid TOML") from None


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


def _normal(table: dict[str, Any]) -> dict[str, Any]:
    """The settings without empty tables for notifications, which mean nothing."""
    notify = {key: value for key, value in table.get("notify", {}).items() if value != {}}
    rest = {key: value for key, value in table.items() if key != "notify"}
    return {**rest, "notify": notify} if notify else rest


def _write(path: str, text: str, wanted: dict[str, Any]) -> None:
    """Replace the file at once, readable only for its owner. Raises Conflict, TryLater."""
    try:
        is_right = _normal(tomllib.loads(text)) == _normal(wanted)
    except ValueError:
        is_right = False
    if not is_right:
        raise Conflict(
            f"the settings file `{path}` has a form that this command cannot change",
            "edit it with an editor",
        )
    path = os.path.realpath(path)  # a link stays a link
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        mode = os.stat(path).st_mode & 0o700 | 0o600 if os.path.exists(path) else 0o600
        with open(os.open(temporary, flags, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise TryLater(f"cannot write `{path}`: {error.strerror}") from None
