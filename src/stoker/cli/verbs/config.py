"""`stoker config`: the settings with their sources; set one, or edit the file."""

from __future__ import annotations

import os
import sys
from typing import Any

from stoker.cli.output import notice, print_change, print_json, table
from stoker.client.settings_file import (
    literal_of,
    parse_tables,
    read_text,
    replace_file,
    with_value,
)
from stoker.engine.daemon.status import daemon_pid
from stoker.errors import Conflict, UsageError
from stoker.settings import (
    Settings,
    check_tables,
    cores,
    cpu_slots,
    default_state_dir,
    load_with_sources,
    settings_path,
    unknown_setting,
)
from stoker.text.command_line import Parsed, Verb, check_action
from stoker.text.durations import format_duration
from stoker.text.sizes import format_size
from stoker.text.terminal import printable

_ACTIONS = {"ls": "ls", "set": "set KEY VALUE", "edit": "edit"}  # with their usage
# Settings that commands read when they submit jobs; the daemon does not use them.
_OF_SUBMITS = ("backend", "profile", "profiles", "shell", "snapshot", "snapshot_limit")
_SIZES = ("memory", "log_limit", "snapshot_limit")
_DURATIONS = ("grace", "retry_delay", "mps_idle", "terminal_idle", "trace_seconds")

VERB = Verb(
    "config",
    "config [ls | set KEY VALUE | edit]",
    "Show the settings and where each value comes from, or change the settings file.",
    (),
    (
        ("stoker config", "path of the file, values and sources"),
        ("stoker config set grace 30s", ""),
        ("stoker config set profiles.small.gpu_mem 8G", "a key in the table [profiles.small]"),
        ('stoker config set profile \'["small", "night"]\'', "a list"),
        ("stoker config edit", "opens $EDITOR; checks the text before it replaces the file"),
    ),
    """`set` keeps the rest of the file with its comments. A value that is not a number, true, false
or a list is stored as a text. A variable STOKER_<KEY> overrides the file. The daemon reads its
settings when it starts: `stoker daemon restart` (running jobs continue). docs/reference.md explains
the settings.""",
    words="actions",
)


def run(parsed: Parsed) -> int:
    action, *words = parsed.words or ["ls"]
    check_action("config", action, _ACTIONS)
    if len(words) != (2 if action == "set" else 0):
        raise UsageError(
            f"wrong number of arguments for `stoker config {action}`",
            f"usage: stoker config {_ACTIONS[action]}",
        )
    if action == "set":
        return _set(parsed, *words)
    return _edit(parsed) if action == "edit" else _list(parsed)


def _list(parsed: Parsed) -> int:
    settings, sources = load_with_sources()
    path = settings_path()
    if parsed["json"]:
        rows = [
            {"key": key, "value": _as_json(key, settings), "source": sources.get(key, "default")}
            for key in Settings._fields
        ]
        print_json(path=path, exists=os.path.exists(path), settings=rows)
        return 0
    missing = "" if os.path.exists(path) else " (does not exist)"
    print(f"settings file: {printable(path)}{missing}\n")
    lines = [
        (key, printable(_words(key, settings)), _source(sources.get(key, "default"), path))
        for key in Settings._fields
    ]
    print(table(("KEY", "VALUE", "SOURCE"), lines))
    return 0


def _source(source: str, path: str) -> str:
    return "file" if source == path else source


def _as_json(key: str, settings: Settings) -> Any:
    """The value of a setting without secrets: profiles may have them in `env`."""
    value = getattr(settings, key)
    if key == "profiles":
        return list(value or ())
    if key == "resources":
        return dict(value)
    return value._asdict() if hasattr(value, "_asdict") else value


def _words(key: str, settings: Settings) -> str:
    """The value of a setting in effect."""
    value = _as_json(key, settings)
    if key == "limits":
        return "enforce" if value else "off"
    if key == "cores":
        return str(cores(settings))
    if key == "cpu_slots":
        return str(cpu_slots(settings))
    if isinstance(value, bool):
        return str(value).lower()
    if value in (None, "", ()) or (key == "memory" and not value):
        return "-"
    if key in _SIZES:
        return format_size(value)
    if key in _DURATIONS:
        return format_duration(value) if value else "0"
    if isinstance(value, dict):
        shown = {name: one for name, one in value.items() if one not in (None, "", (), False)}
        return " ".join(f"{name}={_joined(one)}" for name, one in shown.items()) or "-"
    return _joined(value) or "-"


def _joined(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _set(parsed: Parsed, key: str, value: str) -> int:
    path, names = settings_path(), key.split(".")
    if names[0] not in Settings._fields:
        raise unknown_setting(names[0])
    if not all(names):
        raise UsageError(f"`{key}` is not a key", "example: profiles.small.gpu_mem")
    text = read_text(path)
    literal = literal_of(value)
    wanted = inner = parse_tables(text, path)
    for name in names[:-1]:
        inner = inner.setdefault(name, {})
        if not isinstance(inner, dict):
            raise UsageError(f"`{name}` in `{path}` is not a table", "edit it: stoker config edit")
    inner[names[-1]] = parse_tables(f"x = {literal}", path)["x"]
    _check(wanted, path, names[1:2] if names[0] == "profiles" else [])
    replace_file(path, with_value(text, names, literal), wanted)
    return _changed(parsed, f"set {key} in {path}", [names[0]])


def _edit(parsed: Parsed) -> int:
    import subprocess
    import tempfile

    path = settings_path()
    before = read_text(path)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor and not sys.stdin.isatty():
        raise UsageError(
            "`stoker config edit` needs a terminal or an editor",
            "set EDITOR, or use: stoker config set KEY VALUE",
        )
    with tempfile.NamedTemporaryFile("w+", suffix=".toml", delete=False) as file:
        file.write(before)
    command = ["/bin/sh", "-c", f'{editor or "vi"} "$1"', "sh", file.name]
    if subprocess.run(command).returncode:
        os.unlink(file.name)
        raise Conflict("the editor failed; the settings are unchanged")
    text = read_text(file.name)
    try:
        wanted = parse_tables(text, file.name)
        _check(wanted, file.name, wanted.get("profiles", ()))
        if read_text(path) != before:
            raise Conflict(f"`{path}` was changed meanwhile; the settings are as they were")
    except (UsageError, Conflict) as error:
        raise type(error)(
            error.message, f"the settings are unchanged; your text is in {file.name}"
        ) from None
    os.unlink(file.name)
    if text == before:
        return print_change(parsed, f"no changes in {path}", path=path, changed=[])
    old = _tables_before(before)
    replace_file(path, text, wanted)
    keys = [key for key in Settings._fields if old.get(key) != wanted.get(key)]
    return _changed(parsed, f"changed {', '.join(keys) or 'comments'} in {path}", keys)


def _tables_before(text: str) -> dict[str, Any]:
    """The tables of a text that may be damaged, which is why it was edited."""
    try:
        return parse_tables(text, "")
    except UsageError:
        return {}


def _check(wanted: dict[str, Any], path: str, profiles: Any) -> None:
    """Raise UsageError for settings that no command could use."""
    from stoker.client.settings_profiles import profile_values

    values = check_tables(wanted, path)
    settings = Settings(**{"state_dir": default_state_dir(), **values})  # type: ignore[arg-type]
    for name in profiles:
        profile_values(name, settings)


def _changed(parsed: Parsed, text: str, keys: list[str]) -> int:
    """Report a change, and what keeps it from having an effect."""
    settings, sources = load_with_sources()
    for key in keys:
        if sources.get(key, "").startswith("STOKER_"):
            notice(f"warning: {sources[key]} is set and overrides the file")
    if set(keys) - set(_OF_SUBMITS) and daemon_pid(settings.state_dir) is not None:
        text += "\nthe running daemon keeps its settings until: stoker daemon restart"
    return print_change(parsed, text, path=settings_path(), changed=keys)
