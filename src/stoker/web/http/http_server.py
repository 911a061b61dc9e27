"""Listen on a port at every address that the same names resolve to, and run uvicorn on it."""

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

from stoker.errors import Conflict, UsageError
from stoker.record import Record
from stoker.web.http.addresses import LOOPBACK, Addresses, leads_to
from stoker.web.http.connection import Listener, Protocol
from stoker.web.http.middleware import HEADER_BYTES

S = TypeVar("S", bound=socket.socket)
_MAX_TRIES = 32  # for port 0: a port that is free at one address may be in use at another
_BACKLOG = 1024  # also holds connections of other users until they are reset
_SEND_BYTES = 256 << 10  # kernel buffer for a client that does not read
_TCP_TIMEOUT_MILLISECONDS = 20_000


class ServerSockets(Record):
    """The sockets of one server: `sockets` answer, `reserved` only block the port for others."""

    addresses: Addresses
    port: int
    sockets: tuple[Listener, ...]
    reserved: tuple[socket.socket, ...]

    def names(self, *own: str) -> frozenset[str]:
        """The names that a Host header may use: each address, the host as given, and `localhost`.

        A name is accepted only if this server holds all of its addresses; at any other address,
        another user could serve a page under the same name. Names in `own` are not checked.
        """
        held = {str(sock.getsockname()[0]) for sock in (*self.sockets, *self.reserved)}
        found = {str(sock.getsockname()[0]) for sock in self.sockets} | set(own)
        candidates = {self.addresses.host, "localhost"}
        if not self.addresses.is_loopback:
            candidates |= {socket.gethostname(), socket.getfqdn()}
        if self.addresses.is_everything:
            return frozenset(found | candidates | set(LOOPBACK[:1]))
        # No process can listen at an address that this host does not have.
        held |= set(self.addresses.others)
        return frozenset(found | {name for name in candidates if name and leads_to(name, held)})

    @property
    def link(self) -> str:
        host = self.addresses.shown
        return f"http://[{host}]:{self.port}/" if ":" in host else f"http://{host}:{self.port}/"

    def close(self) -> None:
        for sock in (*self.sockets, *self.reserved):
            sock.close()


def listen(addresses: Addresses, ports: Sequence[int], hint: str) -> ServerSockets:
    """Bind the first of these ports that is free at all addresses.

    Raises UsageError for a number that is not a port, and Conflict with this hint when no port can
    be bound.
    """
    failure: _BindFailed | None = None
    for port in ports:
        if not 0 <= port < 1 << 16:
            raise UsageError(f"{port} is not a port", "give a port from 1 to 65535")
        for _ in range(1 if port else _MAX_TRIES):
            try:
                return _bind_all(addresses, port)
            except _BindFailed as error:
                failure = error
        if failure is not None and failure.number not in (errno.EADDRINUSE, errno.EACCES):
            break
    assert failure is not None
    raise Conflict(
        f"cannot listen on {failure.address}: {os.strerror(failure.number)}", failure.hint or hint
    )


class _BindFailed(Exception):
    def __init__(self, address: str, port: int, number: int, is_other: bool) -> None:
        self.address = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        self.number = number
        self.hint = None
        if is_other:
            self.hint = (
                f"browsers could reach the other process as `localhost:{port}`; choose another "
                "port with --port N"
            )


def _bind_all(addresses: Addresses, port: int) -> ServerSockets:
    """Bind the port at every address, or raise _BindFailed and leave no socket open."""
    listeners: list[Listener] = []
    reserved: list[socket.socket] = []
    answers_all = not addresses.is_everything
    address = addresses.found[0]
    try:
        for address in addresses.found:
            listeners.append(_bind(Listener, address, port))
            port = listeners[-1].getsockname()[1]
        for address in addresses.others:
            try:
                if answers_all:
                    listeners.append(_bind(Listener, address, port))
                else:  # a wildcard of one address family: block the port in the other family
                    reserved.append(_bind(socket.socket, address, port))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
        for listener in listeners:
            address = listener.getsockname()[0]
            listener.listen(_BACKLOG)
    except OSError as error:
        for sock in (*listeners, *reserved):
            sock.close()
        number = error.errno or errno.EINVAL
        raise _BindFailed(address, port, number, address in addresses.others) from None
    return ServerSockets(addresses, port, tuple(listeners), tuple(reserved))


def _bind(kind: type[S], address: str, port: int) -> S:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = kind(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        if kind is Listener:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TCP_TIMEOUT_MILLISECONDS)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # getaddrinfo parses the scope of a link-local address (`fe80::1%eth0`).
        sock.bind(socket.getaddrinfo(address, port, family, socket.SOCK_STREAM)[0][4])
    except OSError:
        sock.close()
        raise
    return sock


class Server(uvicorn.Server):
    """uvicorn with Stoker's settings. `on_exit` is called before it waits for open connections."""

    def __init__(self, app: ASGIApp, on_exit: Callable[[], None] = lambda: None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,
                ws="none",
                loop="asyncio",
                lifespan="off",
                access_log=False,
                log_config=None,
                log_level="error",
                server_header=False,
                proxy_headers=False,
                h11_max_incomplete_event_size=HEADER_BYTES,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=3,
                backlog=_BACKLOG,
            )
        )
        self._on_exit = on_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._on_exit()


@contextmanager
def serving(app: ASGIApp, listening: ServerSockets) -> Iterator[None]:
    """Serve in a thread until the end of the block; the caller keeps its signal handlers."""
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
