"""A port, and uvicorn on it."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from stoker.errors import Conflict, UsageError
from stoker.http.gate import HEADER_BYTES
from stoker.http.protocol import Protocol

_BACKLOG = 128
_SEND_BYTES = 256 << 10  # what the kernel may hold for a client that does not read
_DEAD_MILLISECONDS = 20_000


def listen(host: str, ports: Sequence[int], hint: str) -> socket.socket:
    """The first of these ports that is free."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        raise UsageError(f"`{host}` is no address of this host") from None
    family, _, _, _, address = found[0]
    trouble = None
    for port in ports:
        if not 0 <= port < 1 << 16:
            raise UsageError(f"there is no port {port}")
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
    raise Conflict(f"cannot listen on {host}:{ports[-1]}: {trouble.strerror}", hint)


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
def serving(app: ASGIApp, listener: socket.socket) -> Iterator[None]:
    """Answer in a thread until the end of the block; signals stay with the caller."""
    server = Server(app)
    worker = threading.Thread(target=server.run, args=([listener],), daemon=True)
    worker.start()
    try:
        yield
    finally:
        server.should_exit = True
        worker.join()
