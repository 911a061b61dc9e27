"""The process: one for each state folder, held by a lock; its jobs and daemon do not need it.

    python -m stoker.web.server '{"host": ..., "told": FD}'

is started by `stoker web`, which waits for one line on FD: where it listens, or what is wrong.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import socket
import sys
from types import FrameType

import uvicorn

from stoker.core.record import Record
from stoker.errors import Conflict, Error, UsageError
from stoker.settings import Settings, load_settings, prepare_state_dir
from stoker.supervisor import locks
from stoker.web.app import make_app
from stoker.web.gate import HEADER_BYTES, own_uids
from stoker.web.guard import Guard, own_hosts
from stoker.web.peer import is_loopback
from stoker.web.place import DEFAULT_PORT, LOCK, TOKEN, Place, last_place, write_place
from stoker.web.protocol import Protocol
from stoker.web.tokens import Keys, load_token
from stoker.web.web import Web

_BACKLOG = 128
_SEND_BYTES = 256 << 10  # what the kernel may hold for a client that does not read
_DEAD_MILLISECONDS = 20_000


class Options(Record):
    host: str = "127.0.0.1"
    port: int | None = None
    token_file: str | None = None
    read_only: bool = False


class Server(uvicorn.Server):
    """Ends its streams before it waits for their connections."""

    def __init__(self, config: uvicorn.Config, web: Web) -> None:
        super().__init__(config)
        self._web = web

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._web.hub.stop()


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
    listener = _listen(folder, options)
    address, port = listener.getsockname()[:2]
    token_file = options.token_file or os.path.join(folder, TOKEN)
    guard = Guard(
        own_hosts(options.host, port, address), Keys(load_token(token_file)),
        cookie=f"stoker_{port}", read_only=options.read_only,
        own_uids=own_uids() if is_loopback(address) else None,
    )  # fmt: skip
    web = Web(settings, guard)
    config = uvicorn.Config(
        make_app(web), http=Protocol, ws="none", loop="asyncio", lifespan="off",
        access_log=False, log_config=None, server_header=False, proxy_headers=False,
        h11_max_incomplete_event_size=HEADER_BYTES, timeout_keep_alive=30,
        timeout_graceful_shutdown=3, backlog=_BACKLOG,
    )  # fmt: skip
    place = Place(os.getpid(), options.host, port, options.read_only, token_file)
    write_place(folder, place)
    if told is not None:
        _tell(told, place._asdict())
    try:
        Server(config, web).run(sockets=[listener])
    finally:
        web.close()


def _listen(folder: str, options: Options) -> socket.socket:
    """The port that was asked for; else that of the last server, whose tabs look for it there."""
    try:
        found = socket.getaddrinfo(options.host, None, type=socket.SOCK_STREAM)
    except OSError:
        raise UsageError(f"`{options.host}` is no address of this host") from None
    family, _, _, _, address = found[0]
    ports = [options.port]
    if options.port is None:
        before = last_place(folder)
        ports = [*([before.port] if before is not None else []), DEFAULT_PORT, 0]
    trouble = None
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_MILLISECONDS)
            listener.bind((address[0], port))
            listener.listen(_BACKLOG)
            return listener
        except OSError as error:
            listener.close()
            trouble = error
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                break
    assert trouble is not None
    raise Conflict(
        f"cannot listen on {options.host}:{ports[-1]}: {trouble.strerror}",
        "stoker web --port N takes another port",
    )


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
