"""The process of the web server: one per state folder, enforced by a lock. The daemon does not need
it.

    python -m stoker.web.server '{"host": ..., "ready_fd": FD}'

is started by `stoker web`, which reads one line of JSON from FD: the server's address, or an error.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time

from stoker.engine.supervisor import locks
from stoker.errors import Error
from stoker.record import Record
from stoker.settings import Settings, load_settings, prepare_state_dir
from stoker.web.app import make_app
from stoker.web.auth import Guard
from stoker.web.context import WebContext
from stoker.web.http.addresses import Addresses, host_values
from stoker.web.http.http_server import Server, ServerSockets, listen
from stoker.web.http.peers import own_uids
from stoker.web.http.token_file import load_token
from stoker.web.server_address import (
    DEFAULT_PORT,
    LOCK,
    REVOKED,
    TOKEN,
    ServerAddress,
    last_place,
    write_place,
)
from stoker.web.sessions import Keys, Revocations


class Options(Record):
    host: str = "127.0.0.1"
    addresses: tuple[str, ...] = ("127.0.0.1",)  # what the host was resolved to
    port: int | None = None
    token_file: str | None = None
    read_only: bool = False
    tunnel_port: int | None = None  # of another machine, from which ssh forwards connections


def serve(settings: Settings, options: Options, ready_fd: int | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C. One line of JSON is written to `ready_fd` after the start."""
    folder = settings.state_dir
    prepare_state_dir(settings)
    held = locks.take(folder, LOCK)
    try:
        _serve(settings, options, ready_fd)
    finally:
        os.close(held)  # before the error is reported, so that the caller can retry at once


def serve_tunnel(settings: Settings, options: Options, ready_fd: int) -> None:
    """Serve for one ssh connection, beside the server of this state folder, if there is one."""
    prepare_state_dir(settings)
    _serve(settings, options, ready_fd)


def _serve(settings: Settings, options: Options, ready_fd: int | None) -> None:
    folder = settings.state_dir
    addresses = Addresses(options.host, tuple(options.addresses))
    ports = _ports(folder, options.port) if options.tunnel_port is None else [0]
    listening = listen(addresses, ports, "choose another port: stoker web --port N")
    try:
        _run(settings, options, listening, ready_fd)
    finally:
        listening.close()


def _run(
    settings: Settings, options: Options, listening: ServerSockets, ready_fd: int | None
) -> None:
    folder, port = settings.state_dir, listening.port
    token_file = options.token_file or os.path.join(folder, TOKEN)
    revoked = Revocations(os.path.join(folder, REVOKED), time.time())
    hosts, shown_port = host_values(listening.names(), port), port
    if options.tunnel_port is not None:
        shown_port = options.tunnel_port
        # Not `localhost`: at [::1] of that machine, another user could serve a page.
        hosts |= host_values(["127.0.0.1"], shown_port)
    guard = Guard(
        hosts,
        Keys(load_token(token_file), revoked),
        cookie=f"stoker_{shown_port}",
        read_only=options.read_only,
        own_uids=own_uids() if listening.addresses.is_loopback else None,
    )
    web = WebContext(settings, guard)
    address = ServerAddress(
        os.getpid(), listening.addresses.shown, port, options.read_only, token_file
    )
    if options.tunnel_port is None:
        write_place(folder, address)
    if ready_fd is not None:
        _report(ready_fd, address._asdict())
    try:
        Server(make_app(web), web.hub.stop).run(sockets=list(listening.sockets))
    finally:
        web.close()


def _ports(folder: str, requested: int | None) -> list[int]:
    """The ports to try: the requested one; else that of the last server, so that open browser tabs
    reconnect, then the default, then any."""
    if requested is not None:
        return [requested]
    before = last_place(folder)
    return [*([before.port] if before is not None else []), DEFAULT_PORT, 0]


def _report(descriptor: int, content: dict[str, object]) -> None:
    try:
        os.write(descriptor, json.dumps(content).encode() + b"\n")
        os.close(descriptor)
    except OSError:
        pass  # the starting process has exited


def main(words: list[str]) -> int:
    """Entry point of the process that `stoker web` starts; it reports errors on its descriptor."""
    given = json.loads(words[0])
    ready_fd = given.pop("ready_fd")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        os.chdir("/")
        serve(load_settings(), Options(**given), ready_fd)
    except Error as error:
        content = {"code": error.code, "message": error.message, "hint": error.hint}
        _report(ready_fd, {"error": content})
        logging.getLogger("stoker.web").error("%s", error.message)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
