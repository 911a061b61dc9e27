"""Boxes: machines that `stoker --host` reaches over ssh, and their names (`stoker context`).

The names are in contexts.json, next to the settings file. The file current-context holds the name
that `stoker context use` chose; without it, commands run on this machine.
"""

from __future__ import annotations

import json
import os

from stoker.errors import NotFound, TryLater, UsageError
from stoker.fields import from_fields
from stoker.record import Record
from stoker.settings import config_folder
from stoker.text.suggestions import nearest

LOCAL = "local"  # in place of a name: this machine
SYNC_FOLDER = "~/stoker"
_FILE = "contexts.json"
CURRENT = "current-context"
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class Box(Record):
    """A machine with Stoker that ssh can reach. Its paths may begin with `~/`."""

    name: str  # as messages show it
    host: str  # what ssh connects to: a name in its config, or [USER@]HOST
    dir: str | None = None  # the folder in which commands run; None: the home folder
    stoker: str | None = None  # path of the program; None: found in the PATH
    sync_dir: str = SYNC_FOLDER  # folder of the copies that --sync makes
    ssh_options: tuple[str, ...] = ()  # KEY=VALUE, as in ssh -o


def chosen_box(option: str | None) -> Box | None:
    """The box that a command runs on; None for this machine.

    In this order: the option --host, STOKER_HOST, STOKER_CONTEXT, `stoker context use`. Inside a
    job, only the option counts: there, `stoker` means the queue of the job. Raises UsageError or
    NotFound.
    """
    if option is not None:
        return _named(option, "--host")
    if "STOKER_JOB_ID" in os.environ:
        return None
    if os.environ.get("STOKER_HOST"):
        return _named(os.environ["STOKER_HOST"], "STOKER_HOST")
    name = os.environ.get("STOKER_CONTEXT") or current_name()
    return None if name == LOCAL else known_box(name)


def _named(text: str, source: str) -> Box | None:
    """The box with this name, or the host of this name."""
    if text == LOCAL:
        return None
    box = saved_boxes().get(text)
    if box is not None:
        return box
    check_host(text, source)
    return Box(text, text)


def check_host(host: str, source: str) -> None:
    """Raise UsageError for a text that ssh would not take as a host."""
    if not host or host.startswith("-") or any(c.isspace() or c == "\0" for c in host):
        raise UsageError(
            f"`{source}`: `{host}` is not a host", "give a host that ssh knows: user@gpu-box"
        )


def known_box(name: str) -> Box:
    """The saved box with this name. Raises NotFound."""
    boxes = saved_boxes()
    if name in boxes:
        return boxes[name]
    near = nearest(name, list(boxes))
    hint = f"did you mean `{near}`?" if near else "`stoker context ls` lists them"
    raise NotFound(f"there is no context `{name}`", hint)


def saved_boxes() -> dict[str, Box]:
    """All saved boxes by name. Raises UsageError if the file is damaged."""
    path = os.path.join(config_folder(), _FILE)
    try:
        with open(path, encoding="utf-8") as file:
            boxes = [from_fields(Box, fields) for fields in json.load(file)["contexts"]]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"cannot read `{path}`: {error}", "repair or remove it, and add the contexts again"
        ) from None
    return {box.name: box._replace(ssh_options=tuple(box.ssh_options)) for box in boxes}


def save_box(box: Box) -> None:
    """Save a box under its name, in place of an earlier one. Raises UsageError, TryLater."""
    if box.name == LOCAL or box.name.startswith("-") or not _NAME_CHARACTERS.issuperset(box.name):
        raise UsageError(
            f"`{box.name}` is not a name of a context",
            "use letters, digits, `.`, `_` and `-`; `local` means this machine",
        )
    check_host(box.host, "--host")
    _write_boxes({**saved_boxes(), box.name: box})


def remove_box(name: str) -> None:
    """Remove a saved box; if it was in use, commands run on this machine again."""
    known_box(name)
    boxes = saved_boxes()
    del boxes[name]
    if current_name() == name:
        use_box(LOCAL)
    _write_boxes(boxes)


def current_name() -> str:
    """The name that `stoker context use` chose; `local` by default."""
    try:
        with open(os.path.join(config_folder(), CURRENT), encoding="utf-8") as file:
            return file.read().strip() or LOCAL
    except OSError:
        return LOCAL


def use_box(name: str) -> None:
    """Run commands on this box from now on; `local`: on this machine. Raises NotFound."""
    path = os.path.join(config_folder(), CURRENT)
    if name != LOCAL:
        known_box(name)
        _write_private(path, f"{name}\n")
        return
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _write_boxes(boxes: dict[str, Box]) -> None:
    rows = [box._asdict() for _, box in sorted(boxes.items())]
    text = json.dumps({"contexts": rows}, indent=1)
    _write_private(os.path.join(config_folder(), _FILE), f"{text}\n")


def _write_private(path: str, text: str) -> None:
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        raise TryLater(f"cannot write `{path}`: {error.strerror}") from None
