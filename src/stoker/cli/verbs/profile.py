"""`stoker profile`: the profiles in the settings file, for `--profile NAME`."""

from __future__ import annotations

from typing import Any

from stoker.cli.output import print_json, table
from stoker.errors import UsageError
from stoker.settings import Settings, load_settings, settings_path
from stoker.text.command_line import Parsed, Verb, check_action
from stoker.text.terminal import printable

VERB = Verb(
    "profile",
    "profile [ls] | show NAME",
    "Show the profiles in the settings file: sets of job options that `--profile NAME` uses.",
    (),
    (
        ("stoker profile", "all profiles"),
        ("stoker profile show vision", "one profile, checked"),
        ("stoker submit --profile vision python train.py", "use it"),
    ),
    """A profile is a table [profiles.NAME] in the settings file. Its keys are those of the Python
API: `gpu_mem` for `--gpu-mem`. Options of a command override those of its profiles. The setting
`profile` names the profile of jobs without `--profile`.""",
    words="actions",
)
_ACTIONS = ("ls", "show")


def run(parsed: Parsed) -> int:
    action, *names = parsed.words or ["ls"]
    check_action("profile", action, _ACTIONS)
    settings = load_settings()
    if action == "show":
        if len(names) != 1:
            raise UsageError("give one name: stoker profile show NAME")
        return _show(names[0], settings, parsed)
    if names:
        raise UsageError(f"`stoker profile ls` takes no name, but got `{names[0]}`")
    return _list(settings, parsed)


def _list(settings: Settings, parsed: Parsed) -> int:
    profiles = settings.profiles or {}
    if parsed["json"]:
        rows = [
            {"name": name, "default": name in settings.profile, "options": options}
            for name, options in profiles.items()
        ]
        print_json(profiles=rows, settings=settings_path())
        return 0
    if not profiles:
        print(f"no profiles; add a table [profiles.NAME] to {settings_path()}")
        return 0
    lines = [
        ("*" if name in settings.profile else "", name, _words(options))
        for name, options in profiles.items()
    ]
    print(table(("", "NAME", "OPTIONS"), lines))
    return 0


def _show(name: str, settings: Settings, parsed: Parsed) -> int:
    from stoker.client.settings_profiles import profile_values

    profile_values(name, settings)  # raises UsageError for a mistake in it
    options = (settings.profiles or {})[name]
    if parsed["json"]:
        is_default = name in settings.profile
        print_json(profiles=[{"name": name, "default": is_default, "options": options}])
        return 0
    for key, value in options.items():
        print(f"{key:<12}{printable(_text(value))}")
    return 0


def _words(options: dict[str, object]) -> str:
    return printable(" ".join(f"{key}={_text(value)}" for key, value in options.items()))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    if isinstance(value, dict):
        return ",".join(f"{key}={_text(one)}" for key, one in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)
