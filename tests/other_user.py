"""Run code as another user of this host; such tests are skipped unless they run as root."""

from __future__ import annotations

import encodings.idna  # the other user may not be able to import it later
import os
import signal
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

assert encodings.idna
OTHER = 65534


def become_other() -> None:
    os.setgroups([])
    os.setgid(OTHER)
    os.setuid(OTHER)


def as_other_user(work: Callable[[], bytes]) -> bytes:
    """Call `work` as another user; returns its result."""
    _need_root()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            become_other()
            os.write(writer, work()[:60000])
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    with open(reader, "rb") as file:
        answer = file.read()
    assert os.waitpid(pid, 0)[1] == 0
    return answer


@contextmanager
def busy_other_user(work: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """Run `work` as another user during the block, which begins when `work` calls its argument.

    `work` must not return before the end of the block.
    """
    _need_root()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become_other()
            work(lambda: (os.write(writer, b"x"), None)[1])
        finally:
            os._exit(1)
    os.close(writer)
    try:
        assert os.read(reader, 1) == b"x"
        yield
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
    assert status == signal.SIGKILL, "the work returned too early"


@contextmanager
def other_user_listens(address: str, port: int) -> Iterator[None]:
    """Another user listens during the block; a connection fails the test."""

    def work(begin: Callable[[], None]) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.create_server((address, port), family=family) as listener:
            begin()
            listener.accept()

    with busy_other_user(work):
        yield


def need_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this host has no IPv6 loopback address")


def _need_root() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
