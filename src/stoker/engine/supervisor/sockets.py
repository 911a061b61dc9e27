"""Unix sockets in the state folder, even if its path exceeds the kernel's limit of 107 bytes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def short_path(folder: str, name: str) -> Iterator[str]:
    """A path to folder/name that fits into a socket address."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def listen(folder: str, name: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """A listening socket that only this user can reach: the folder is 0700, the socket 0600."""
    try:
        os.unlink(os.path.join(folder, name))
    except FileNotFoundError:
        pass
    made = socket.socket(socket.AF_UNIX, kind)
    mask = os.umask(0o177)
    try:
        with short_path(folder, name) as path:
            made.bind(path)
    finally:
        os.umask(mask)
    if kind == socket.SOCK_STREAM:
        made.listen(64)
    made.setblocking(False)
    return made


def connect(folder: str, name: str) -> socket.socket:
    """Connect to a socket; raises OSError if no process is listening."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(folder, name) as path:
            made.connect(path)
    except OSError:
        made.close()
        raise
    return made
