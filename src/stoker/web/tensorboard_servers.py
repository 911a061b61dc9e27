"""The TensorBoards that the web server has started, one per folder."""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
import threading
import time
from importlib.util import find_spec

from stoker.core.record import Record
from stoker.errors import TryLater, Unavailable

_MAX_SERVERS = 4
_START_SECONDS = 60.0


class _Server(Record):
    process: subprocess.Popen[bytes]
    url: str
    port: int


class TensorboardServers:
    def __init__(self) -> None:
        self._servers: dict[str, _Server] = {}
        self._lock = threading.Lock()

    @staticmethod
    def is_installed() -> bool:
        """Whether TensorBoard is installed beside Stoker."""
        return find_spec("tensorboard") is not None

    def open(self, folder: str) -> tuple[str, int]:
        """(address, port) of a TensorBoard for a folder; starts one unless it runs.

        Raises Unavailable if it is not installed or does not start, TryLater if another one is
        starting.
        """
        if not self.is_installed():
            raise Unavailable("tensorboard is not installed", "pip install tensorboard")
        if not self._lock.acquire(timeout=1):
            raise TryLater("another TensorBoard is starting", "try again in a few seconds")
        try:
            known = self._servers.get(folder)
            if known is None or known.process.poll() is not None:
                self._end_oldest()
                known = self._servers[folder] = self._start(folder)
            return known.url, known.port
        finally:
            self._lock.release()

    def _end_oldest(self) -> None:
        for folder, one in list(self._servers.items()):
            if one.process.poll() is not None:
                del self._servers[folder]
        while len(self._servers) >= _MAX_SERVERS:
            oldest = next(iter(self._servers))
            _end(self._servers.pop(oldest).process)

    def _start(self, folder: str) -> _Server:
        process = subprocess.Popen(
            [sys.executable, "-m", "stoker.web.tensorboard_process", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdin is not None and process.stdout is not None
        secret = secrets.token_urlsafe(24)
        try:
            process.stdin.write(json.dumps({"folder": folder, "secret": secret}).encode() + b"\n")
            process.stdin.flush()
            line = _first_line(process.stdout.fileno())
            port = int(json.loads(line)["port"])
        except (OSError, ValueError):
            _end(process)
            raise Unavailable(
                "TensorBoard did not start", "run it by hand to see why: tensorboard --logdir ..."
            ) from None
        return _Server(process, f"http://127.0.0.1:{port}/{secret}/", port)

    def close(self) -> None:
        for one in self._servers.values():
            _end(one.process)
        self._servers.clear()


def _first_line(descriptor: int) -> bytes:
    end = time.monotonic() + _START_SECONDS
    line = b""
    while not line.endswith(b"\n") and time.monotonic() < end:
        ready, _, _ = select.select([descriptor], [], [], 1.0)
        if ready:
            data = os.read(descriptor, 4096)
            if not data:
                break
            line += data
    return line


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                pass
