"""The process: one for each state folder, held by a lock; its jobs and daemon do not need it.

    python -m stoker.web.server '{"host": ..., "told": FD}'

is started by `stoker web`, which waits for one line on FD: where it listens, or what is wrong.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time

from stoker.core.record import Record
from stoker.errors import Error
from stoker.http.addresses import Addresses, host_values
from stoker.http.http_server import Server, ServerSockets, listen
from stoker.http.peers import own_uids
from stoker.http.token_file import load_token
from stoker.settings import Settings, load_settings, prepare_state_dir
from stoker.supervisor import locks
from stoker.web.app import make_app
from stoker.web.auth import Guard
from stoker.web.context import WebContext
from stoker.web.revocations import Revocations
from stoker.web.server_address import (
    DEFAULT_PORT,
    LOCK,
    REVOKED,
    TOKEN,
    ServerAddress,
    last_place,
    write_place,
)
from stoker.web.sessions import Keys


class Options(Record):
    host: str = "127.0.0.1"
    addresses: tuple[str, ...] = ("127.0.0.1",)  # what the host was resolved to
    port: int | None = None
    token_file: str | None = None
    read_only: bool = False


def serve(settings: Settings, options: Options, told: int | None = None) -> None:
    """Until SIGTERM or Ctrl-C. `told`: a descriptor for one line on how it went."""
    folder = settings.state_dir
    prepare_state_dir(settings)
    held = locks.take(folder, LOCK)
    try:
        _serve(settings, options, told)
    finally:
        os.close(held)  # before anybody is told that it did not work, so that they can try again


def _serve(settings: Settings, options: Options, told: int | None) -> None:
    folder = settings.state_dir
    addresses = Addresses(options.host, tuple(options.addresses))
    listening = listen(
        addresses, _ports(folder, options.port), "stoker web --port N takes another port"
    )
    try:
        _answer(settings, options, listening, told)
    finally:
        listening.close()


def _answer(
    settings: Settings, options: Options, listening: ServerSockets, told: int | None
) -> None:
    folder, port = settings.state_dir, listening.port
    token_file = options.token_file or os.path.join(folder, TOKEN)
    over = Revocations(os.path.join(folder, REVOKED), time.time())
    guard = Guard(
        host_values(listening.names(), port), Keys(load_token(token_file), over),
        cookie=f"stoker_{port}", read_only=options.read_only,
        own_uids=own_uids() if listening.addresses.is_loopback else None,
    )  # fmt: skip
    web = WebContext(settings, guard)
    place = ServerAddress(
        os.getpid(), listening.addresses.shown, port, options.read_only, token_file
    )
    write_place(folder, place)
    if told is not None:
        _tell(told, place._asdict())
    try:
        Server(make_app(web), web.hub.stop).run(sockets=list(listening.sockets))
    finally:
        web.close()


def _ports(folder: str, asked: int | None) -> list[int]:
    """The port that was asked for; else that of the last server, whose tabs look for it there."""
    if asked is not None:
        return [asked]
    before = last_place(folder)
    return [*([before.port] if before is not None else []), DEFAULT_PORT, 0]


def _tell(descriptor: int, content: dict[str, object]) -> None:
    try:
        os.write(descriptor, json.dumps(content).encode() + b"\n")
        os.close(descriptor)
    except OSError:
        pass  # whoever started us has left


def main(words: list[str]) -> int:
    """Started by `stoker web`; what is wrong goes to those who wait for it."""
    given = json.loads(words[0])
    told = given.pop("told")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        os.chdir("/")
        serve(load_settings(), Options(**given), told)
    except Error as error:
        known = {"code": error.code, "message": error.message, "hint": error.hint}
        _tell(told, {"error": known})
        logging.getLogger("stoker.web").error("%s", error.message)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
