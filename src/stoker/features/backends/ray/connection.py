"""The connection of a driver to Ray: a child process that imports Ray (client_process.py)."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from typing import Any

from stoker.features.backends.protocol import Unreachable
from stoker.features.backends.ray.client_process import receive, send

_CONNECT_SECONDS = 60.0
_ANSWER_SECONDS = 30.0
_PORT_SECONDS = 5.0  # Ray itself tries for minutes
_DEFAULT_PORT = 6379
_LOG_BYTES = 1 << 20
_REFUSED_TOKEN = b"InvalidAuthToken"


class RayConnection:
    """Connects with the first call, and again after an error. Every call may raise Unreachable."""

    def __init__(self, address: str, variables: dict[str, str], token_file: str | None) -> None:
        """`variables`: those of Ray when the backend was added."""
        self._address = address
        self._variables = variables
        self._token_file = token_file
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # what Ray prints

    def call(self, method: str, *arguments: Any, seconds: float = _ANSWER_SECONDS) -> Any:
        """Call a method of `Client` and return its answer."""
        if self._process is None:
            self._connect()
        if os.fstat(self._log.fileno()).st_size > _LOG_BYTES:
            os.ftruncate(self._log.fileno(), 0)
        try:
            assert self._process is not None and self._process.stdin is not None
            send(self._process.stdin, (method, arguments))
        except BrokenPipeError:
            self.close()
            raise Unreachable(f"the connection to Ray at {self._address} broke") from None
        return self._answer(time.monotonic() + seconds)

    def _connect(self) -> None:
        if find_spec("ray") is None:
            raise Unreachable("Ray is not installed here: pip install 'stoker[ray]'")
        address = check_port(self._address)
        os.ftruncate(self._log.fileno(), 0)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "stoker.features.backends.ray.client_process", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=self._environment(),
            cwd="/",
        )
        self._answer(time.monotonic() + _CONNECT_SECONDS, is_first=True)

    def _environment(self) -> dict[str, str]:
        env = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        env |= {key: value for key, value in self._variables.items() if key.startswith("RAY_AUTH_")}
        env["RAY_USAGE_STATS_ENABLED"] = "0"
        if self._token_file is not None:
            try:
                with open(os.path.expanduser(self._token_file), encoding="utf-8") as file:
                    token = file.read().strip()
            except OSError as error:
                raise Unreachable(
                    f"cannot read the token file `{self._token_file}`: {error.strerror}"
                ) from None
            env.pop("RAY_AUTH_TOKEN_PATH", None)
            env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
        return env

    def _answer(self, deadline: float, is_first: bool = False) -> Any:
        assert self._process is not None and self._process.stdout is not None
        while not select.select([self._process.stdout], [], [], 0.25)[0]:
            if is_first and _REFUSED_TOKEN in self._printed():
                self._fail(self._token_words())
            if time.monotonic() > deadline:
                self._fail(f"Ray at {self._address} does not answer")
        try:
            is_ok, value = receive(self._process.stdout)
        except (EOFError, OSError):
            self._fail(f"the connection to Ray at {self._address} broke")
        if not is_ok:
            self._fail(self._words(str(value)))
        return value

    def _fail(self, words: str) -> None:
        self.close()
        raise Unreachable(words)

    def _words(self, error: str) -> str:
        if "AuthenticationError" in error or _REFUSED_TOKEN in self._printed():
            return self._token_words()
        kind, _, text = error.partition(": ")
        text = " ".join(text.split())
        return f"cannot connect to Ray at {self._address}: {text or kind}"

    def _token_words(self) -> str:
        if self._token_file is not None:
            return f"Ray at {self._address} refuses the token in `{self._token_file}`"
        if "RAY_AUTH_TOKEN" in self._variables:
            return f"Ray at {self._address} refuses the token in RAY_AUTH_TOKEN"
        return (
            f"Ray at {self._address} requires a token: add the backend with "
            "--option token-file=FILE, or with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN set"
        )

    def _printed(self) -> bytes:
        return os.pread(self._log.fileno(), _LOG_BYTES, 0)

    def close(self) -> None:
        """End the child; actors on the nodes stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
            self._process = None


def check_port(address: str) -> str:
    """Return the address with its port. Raises Unreachable if nothing listens there."""
    if address == "auto":
        return address
    host, _, port = address.rpartition(":")
    if not host:
        host, port = address, str(_DEFAULT_PORT)
    if not port.isdigit():
        raise Unreachable(f"`{address}` is not an address of a Ray cluster: write HOST:PORT")
    try:
        socket.create_connection((host, int(port)), _PORT_SECONDS).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise Unreachable(f"nothing answers at {host}:{port}: {why}") from None
    return f"{host}:{port}"
