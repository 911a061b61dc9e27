"""Name the releases of both machines when a command fails because one is older."""

from __future__ import annotations

from stoker import __version__
from stoker.cli.output import notice
from stoker.errors import Error, Unavailable
from stoker.features.remote.connection import Captured, Connection, Lost

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
