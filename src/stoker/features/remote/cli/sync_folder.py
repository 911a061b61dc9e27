"""`--sync DIR`: make the copy of a folder on a box equal to the folder."""

from __future__ import annotations

import json
import os
from typing import Any

from stoker.cli.output import notice, plural
from stoker.errors import Error
from stoker.features.remote.cli.recover import check_support, recover
from stoker.features.remote.connection import Connection, Lost
from stoker.features.remote.sync_sender import files_of, folder_on_box, send_files
from stoker.text.terminal import printable

_NAMED = 3


def sync_folder(connection: Connection, folder: str, *, is_quiet: bool) -> str:
    """Copy a folder to the box. Returns the folder there that corresponds to the current one.

    Raises UsageError for a folder that cannot be read, and Unavailable.
    """
    files = files_of(folder)
    place = folder_on_box(connection.box.sync_dir, folder)
    while True:
        try:
            done = _sync_once(connection, folder, place, files)
            break
        except Lost as error:
            recover(connection, error)
    if not is_quiet:
        notice(
            f"{plural(len(done['send']), 'file')} of {len(files)} copied to "
            f"{connection.box.name}:{printable(place)}"
        )
    _warn("changed on the box, and kept there as", done["renamed"])
    _warn("not copied, because a link on the box leads elsewhere:", done["outside"])
    return _place_of(os.getcwd(), folder, done["folder"])


def _sync_once(
    connection: Connection, folder: str, place: str, files: dict[str, Any]
) -> dict[str, Any]:
    plan = json.loads(_box(connection, place, "plan", json.dumps({"files": files}).encode()))
    if plan["send"]:
        send_files(connection, folder, plan["folder"], plan["send"])
        _box(connection, place, "finish")
    found: dict[str, Any] = plan
    return found


def _box(connection: Connection, place: str, action: str, data: bytes = b"") -> bytes:
    done = connection.capture(
        ["box", "sync", json.dumps({"folder": place}), action], folder="~", input=data
    )
    check_support(connection, done)
    if done.code != 0:
        text = done.err.decode("utf-8", "replace").strip().removeprefix("error: ")
        raise Error(f"cannot copy files to {connection.box.name}: {text}")
    return done.out


def _warn(text: str, paths: list[str]) -> None:
    if paths:
        more = f" and {len(paths) - _NAMED} others" if len(paths) > _NAMED else ""
        notice(f"warning: {text} {printable(', '.join(paths[:_NAMED]))}{more}")


def _place_of(current: str, folder: str, there: str) -> str:
    """The folder on the box for the current folder, if that is inside of the copied one."""
    path = os.path.relpath(os.path.realpath(current), os.path.realpath(folder))
    if path == "." or path.startswith(".."):
        return there
    return f"{there}/{path}"
