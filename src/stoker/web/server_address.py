"""The web server of a state folder: a lock shows whether it runs, a file contains its address."""

from __future__ import annotations

import json
import os

from stoker.engine.supervisor import locks
from stoker.record import Record

LOCK = "web.lock"
FILE = "web.json"
TOKEN = "web.token"
REVOKED = "web.revoked"
LOG = "web.log"
DEFAULT_PORT = 8899


class ServerAddress(Record):
    """What other processes know about a server; the token is not part of it."""

    pid: int
    host: str
    port: int
    read_only: bool
    token_file: str

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"


def write_place(folder: str, place: ServerAddress) -> None:
    path = os.path.join(folder, FILE)
    temporary = f"{path}.new"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(place._asdict(), file)
    os.rename(temporary, path)


def last_place(folder: str) -> ServerAddress | None:
    """The address of the latest server, running or not: open browser tabs reconnect to it."""
    try:
        with open(os.path.join(folder, FILE), encoding="utf-8") as file:
            return ServerAddress(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None


def living_place(folder: str) -> ServerAddress | None:
    """The address of the running server; None when there is none or it is still starting."""
    place = last_place(folder)
    return place if place is not None and place.pid == living_pid(folder) else None


def living_pid(folder: str) -> int | None:
    """The process that holds the lock of the server; None when there is none."""
    return locks.holder(folder, LOCK)
