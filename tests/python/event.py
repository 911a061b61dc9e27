"""An event that jobs in other processes can wait for, as CPython's executor tests need it."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from contextlib import suppress


class Event:
    """`wait` connects to a Unix socket, and `set` closes it."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._address)
        self._listener.listen()

    @property
    def _address(self) -> str:
        return os.path.join(self._folder, "event")

    def __getstate__(self) -> dict[str, str]:
        return {"_folder": self._folder}

    def set(self) -> None:
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def wait(self) -> None:
        with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
            connection.connect(self._address)
            connection.recv(1)
