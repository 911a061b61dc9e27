"""Settings profiles: named sets of job options in the settings file, for `--profile NAME`.

    [profiles.vision]
    conda = "vision"
    gpu_mem = "20G"

Not to be confused with command profiles, which Stoker learns (core/profiles/). Options of a command
override those of its profiles, and a later profile overrides an earlier one. Values of repeatable
options are joined, profiles first.
"""

from __future__ import annotations

from collections.abc import Mapping

from stoker.client.submit.job_options import BY_KEY, JOB_OPTIONS, file_values
from stoker.errors import Error, UsageError
from stoker.settings import Settings, settings_path
from stoker.text.activation import EXCLUSIVE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# An option of a command replaces all options of these groups in a profile.
_GROUPS = ((*EXCLUSIVE, "mount"), ("gpu_mem", "exclusive"))
_OF_GPUS = (
    "gpu_mem",
    "gpu_ids",
    "prefer",
    "gpu_model",
    "min_gpu_mem",
    "exclusive",
    "share",
    "on_oom",
)
_KEYS = tuple(option.key for option in JOB_OPTIONS if option.key != "profile")


def with_profiles(values: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Add the options of profiles: those that `values` names, otherwise that of the settings.

    Raises UsageError for an unknown profile, and for one with an unknown option or a bad value.
    """
    found = dict(values)
    names = found.pop("profile", None) or settings.profile
    if not names:
        return found
    profile: dict[str, Any] = {}
    for name in names:
        profile = _over(profile, profile_values(name, settings))
    return _over(profile, found)


def profile_values(name: str, settings: Settings) -> dict[str, Any]:
    """The checked options of a profile. Raises UsageError that names the place in the file."""
    from stoker.text.suggestions import nearest

    path = settings_path()
    profiles = settings.profiles or {}
    if name not in profiles:
        near = nearest(name, profiles)
        hint = f"add `[profiles.{name}]` to `{path}`"
        if profiles:
            hint = f"profiles: {', '.join(profiles)}"
        if near is not None:
            hint = f"did you mean `{near}`?"
        raise UsageError(f"there is no profile `{name}` in the settings", hint, "profile")
    given = profiles[name]
    for key in given:
        if key not in (*_KEYS, "tag"):
            near = nearest(key, _KEYS)
            hint = f"did you mean `{near}`?" if near else f"options: {', '.join(_KEYS)}"
            raise UsageError(
                f"{_place(name, key, path)}: `{key}` is not an option of a job", hint, "profile"
            )
    try:
        return file_values(given)
    except Error as error:
        place = _place(name, error.field or "", path)
        raise UsageError(f"{place}: {error.message}", error.hint, "profile") from None


def _over(under: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """`own` over `under`; values of repeatable options are joined."""
    kept = dict(under)
    for group in _GROUPS:
        if any(own.get(key) for key in group[: len(EXCLUSIVE)]):
            for key in group:
                kept.pop(key, None)
    if own.get("gpus") == 0:
        for key in _OF_GPUS:
            kept.pop(key, None)
    found = {**kept, **own}
    for key in own:
        if BY_KEY[key].repeats and key in kept:
            found[key] = (*kept[key], *own[key])
    return found


def _place(name: str, key: str, path: str) -> str:
    """`[profiles.a]` in `settings.toml`, line 7."""
    place = f"`[profiles.{name}]` in `{path}`"
    line = _line_of(name, key, path)
    return place if line is None else f"{place}, line {line}"


def _line_of(name: str, key: str, path: str) -> int | None:
    """The line of a key, or of its table; None if the file writes them in another way."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError):
        return None
    found, is_inside = None, False
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith("["):
            table = text.split("]")[0].strip("[ ").replace('"', "").replace(" ", "")
            is_inside = table == f"profiles.{name}" or table.startswith(f"profiles.{name}.")
            if table in (f"profiles.{name}", f"profiles.{name}.{key}"):
                found = number
        elif is_inside and key and text.partition("=")[0].strip().strip('"') == key:
            return number
    return found
