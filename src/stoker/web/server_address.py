"""Where the server of this state folder is: a lock says whether it lives, a file says where."""

from __future__ import annotations

import json
import os

from stoker.core.record import Record
from stoker.supervisor import locks

LOCK = "web.lock"
FILE = "web.json"
TOKEN = "web.token"
REVOKED = "web.revoked"
LOG = "web.log"
DEFAULT_PORT = 8899


class ServerAddress(Record):
    """What is known of a server to those who did not start it; the token is not part of it."""

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
    part = f"{path}.new"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(place._asdict(), file)
    os.rename(part, path)


def last_place(folder: str) -> ServerAddress | None:
    """Where the latest server was, living or not: its tabs look for it there."""
    try:
        with open(os.path.join(folder, FILE), encoding="utf-8") as file:
            return ServerAddress(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None


def living_place(folder: str) -> ServerAddress | None:
    """Where the server is; None when there is none, or when it is only just starting."""
    place = last_place(folder)
    return place if place is not None and place.pid == living_pid(folder) else None


def living_pid(folder: str) -> int | None:
    return locks.holder(folder, LOCK)
