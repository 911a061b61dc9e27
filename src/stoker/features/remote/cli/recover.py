"""Go on after a lost connection, and name the releases of both machines when one is too old."""

from __future__ import annotations

import os
import time

from stoker import __version__
from stoker.cli.output import notice
from stoker.errors import Error, Unavailable, UsageError
from stoker.features.remote.connection import Captured, Connection, Killed, Lost
from stoker.text.durations import parse_duration


def recover(connection: Connection, error: Lost) -> None:
    """Connect again, so that the command can be repeated.

    Raises Unavailable if that does not work for a long time, or if the command was killed.
    """
    name = connection.box.name
    if isinstance(error, Killed):
        raise Unavailable(
            f"the command was killed on {name}", f"check that machine: stoker --host {name} doctor"
        )
    notice(f"the connection to {name} was lost; connecting again")
    reconnect(connection)


_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 15.0
_DEFAULT_SECONDS = 3600.0
_ANSWER_SECONDS = 30.0  # for one try: a machine that hangs accepts connections but never answers


def patience() -> float:
    """For how many seconds to try: an hour, or STOKER_RECONNECT. Raises UsageError."""
    text = os.environ.get("STOKER_RECONNECT")
    if not text:
        return _DEFAULT_SECONDS
    try:
        return parse_duration(text, "s")
    except Error as error:
        raise UsageError(f"STOKER_RECONNECT: {error.message}", error.hint) from None


def reconnect(connection: Connection) -> None:
    """Try to connect until it works. Raises Unavailable after `patience` seconds."""
    end = time.monotonic() + patience()
    pause = _PAUSE_SECONDS
    while True:
        try:
            left = end - time.monotonic()
            connection.open(is_quiet=True, timeout=min(left, _ANSWER_SECONDS))
            return
        except Unavailable:
            if time.monotonic() >= end:
                raise
        time.sleep(min(pause, max(0.0, end - time.monotonic())))
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)


_UNKNOWN_COMMAND = b"`box` is not a Stoker command"


def note_versions(connection: Connection) -> None:
    """After a usage error of the box: print a note if the box has another release."""
    version = box_version(connection)
    if version is not None and version != __version__:
        notice(
            f"note: {connection.box.name} has Stoker {version} and this machine {__version__}; "
            "the older one may lack a command or an option"
        )


def check_support(connection: Connection, done: Captured) -> None:
    """Raise Unavailable if the box is too old for a command of `features/remote/verbs/box.py`."""
    if done.code == 2 and _UNKNOWN_COMMAND in done.err:
        raise too_old(connection)


def too_old(connection: Connection) -> Unavailable:
    """The error for a box whose release does not know `--host`."""
    name, version = connection.box.name, box_version(connection) or "an older release"
    has = f"{name} has {version}, this machine {__version__}"
    if version == __version__:
        has = f"both have {version}, but {name} an older build of it"
    return Unavailable(
        f"Stoker on {name} is too old for this command: {has}",
        f"upgrade it there: ssh {connection.box.host} pip install --user --upgrade stoker",
    )


def box_version(connection: Connection) -> str | None:
    """The release on the box; None if it cannot be found out."""
    try:
        done = connection.capture(["--version"])
    except (Error, Lost):
        return None
    words = done.out.decode("utf-8", "replace").split()
    return words[1] if done.code == 0 and len(words) == 2 and words[0] == "stoker" else None
