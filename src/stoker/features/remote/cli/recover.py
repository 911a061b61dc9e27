"""Go on after a lost connection."""

from __future__ import annotations

from stoker.cli.output import notice
from stoker.errors import Unavailable
from stoker.features.remote.connection import Connection, Killed, Lost
from stoker.features.remote.reconnect import reconnect


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
