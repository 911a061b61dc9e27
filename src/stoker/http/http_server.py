"""A port at every address that leads to it, and uvicorn on it."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

import uvicorn
from starlette.types import ASGIApp

from stoker.core.record import Record
from stoker.errors import Conflict, UsageError
from stoker.http.addresses import LOOPBACK, Addresses, leads_to
from stoker.http.connection import Protocol
from stoker.http.limits import Listener
from stoker.http.middleware import HEADER_BYTES

S = TypeVar("S", bound=socket.socket)
_TRIES = 32  # a port that is free at one address may be taken at the other
_BACKLOG = 1024  # connections of other users wait here, too, before they are reset
_SEND_BYTES = 256 << 10  # what the kernel may hold for a client that does not read
_DEAD_MILLISECONDS = 20_000


class ServerSockets(Record):
    """Sockets of one server: those that answer, and those that only keep others off the port."""

    addresses: Addresses
    port: int
    sockets: tuple[Listener, ...]
    reserved: tuple[socket.socket, ...]

    def names(self, *own: str) -> frozenset[str]:
        """What may be asked for: each address, the host as it was given, and `localhost`.

        A name counts only if each of its addresses is held by this server. At any other, another
        user could serve a page that browsers take for ours. Names in `own` are taken on trust.
        """
        held = {str(one.getsockname()[0]) for one in (*self.sockets, *self.reserved)}
        found = {str(one.getsockname()[0]) for one in self.sockets} | set(own)
        candidates = {self.addresses.host, "localhost"}
        if not self.addresses.is_loopback:
            candidates |= {socket.gethostname(), socket.getfqdn()}
        if self.addresses.is_everything:
            return frozenset(found | candidates | set(LOOPBACK[:1]))
        # What this host has no address for, nobody can listen on.
        held |= set(self.addresses.others)
        return frozenset(found | {name for name in candidates if name and leads_to(name, held)})

    @property
    def link(self) -> str:
        host = self.addresses.shown
        return f"http://[{host}]:{self.port}/" if ":" in host else f"http://{host}:{self.port}/"

    def close(self) -> None:
        for one in (*self.sockets, *self.reserved):
            one.close()


def listen(addresses: Addresses, ports: Sequence[int], hint: str) -> ServerSockets:
    """Take the first of these ports that is free at every address that the same names lead to."""
    trouble: _Taken | None = None
    for port in ports:
        if not 0 <= port < 1 << 16:
            raise UsageError(f"{port} is not a port", "1 to 65535")
        for _ in range(1 if port else _TRIES):
            try:
                return _take(addresses, port)
            except _Taken as error:
                trouble = error
        if trouble is not None and trouble.number not in (errno.EADDRINUSE, errno.EACCES):
            break
    assert trouble is not None
    raise Conflict(f"cannot listen on {trouble.place}: {os.strerror(trouble.number)}",
                   trouble.hint or hint)  # fmt: skip


class _Taken(Exception):
    def __init__(self, address: str, port: int, number: int, is_other: bool) -> None:
        self.place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        self.number = number
        self.hint = None
        if is_other:
            self.hint = (
                f"`localhost:{port}` would lead to the process that has it; choose another port "
                "with --port N"
            )


def _take(addresses: Addresses, port: int) -> ServerSockets:
    """Bind everything, or nothing."""
    made: list[Listener] = []
    reserved: list[socket.socket] = []
    answers_all = not addresses.is_everything
    place = addresses.found[0]
    try:
        for place in addresses.found:
            made.append(_bind(Listener, place, port))
            port = made[-1].getsockname()[1]
        for place in addresses.others:
            try:
                if answers_all:
                    made.append(_bind(Listener, place, port))
                else:  # asked for one family: the other one does not answer, to anybody
                    reserved.append(_bind(socket.socket, place, port))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
        for listener in made:
            place = listener.getsockname()[0]
            listener.listen(_BACKLOG)
    except OSError as error:
        for one in (*made, *reserved):
            one.close()
        number = error.errno or errno.EINVAL
        raise _Taken(place, port, number, place in addresses.others) from None
    return ServerSockets(addresses, port, tuple(made), tuple(reserved))


def _bind(kind: type[S], address: str, port: int) -> S:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = kind(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        if kind is Listener:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_MILLISECONDS)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # With the scope of a link-local address, which only getaddrinfo knows how to read.
        made.bind(socket.getaddrinfo(address, port, family, socket.SOCK_STREAM)[0][4])
    except OSError:
        made.close()
        raise
    return made


class Server(uvicorn.Server):
    """`on_exit`: what to end before it waits for its connections."""

    def __init__(self, app: ASGIApp, on_exit: Callable[[], None] = lambda: None) -> None:
        super().__init__(uvicorn.Config(
            app, http=Protocol, ws="none", loop="asyncio", lifespan="off", access_log=False,
            log_config=None, log_level="error", server_header=False, proxy_headers=False,
            h11_max_incomplete_event_size=HEADER_BYTES, timeout_keep_alive=30,
            timeout_graceful_shutdown=3, backlog=_BACKLOG,
        ))  # fmt: skip
        self._on_exit = on_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._on_exit()


@contextmanager
def serving(app: ASGIApp, listening: ServerSockets) -> Iterator[None]:
    """Answer in a thread until the end of the block; signals stay with the caller."""
    server = Server(app)
    sockets = list(listening.sockets)
    worker = threading.Thread(target=server.run, args=(sockets,), daemon=True)
    worker.start()
    try:
        yield
    finally:
        server.should_exit = True
        worker.join()
        listening.close()
