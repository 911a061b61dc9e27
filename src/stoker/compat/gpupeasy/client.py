"""How the page asks the server, over the same routes that everybody else may use."""

from __future__ import annotations

import http.client
import json
import os
from typing import Any
from urllib.parse import quote, urlencode

from stoker.errors import UsageError
from stoker.http.addresses import resolve
from stoker.http.peers import listener_uid

_SECONDS = 30.0
_MOST_BYTES = 64 << 20


class Unreachable(Exception):
    """The server did not answer, or is not ours to talk to."""


class Backend:
    def __init__(self, host: str, port: int, token: str | None = None) -> None:
        # Old scripts name the address that servers listen on, not one to connect to.
        self._host = "127.0.0.1" if host in ("0.0.0.0", "") else host
        self._port = port
        self._token = token

    def get(self, *path: str, **query: object) -> Any:
        return self._ask("GET", path, query, None)

    def post(self, *path: str, data: object = None) -> Any:
        return self._ask("POST", path, {}, json.dumps(data).encode())

    def _ask(
        self, method: str, path: tuple[str, ...], query: dict[str, object], body: bytes | None
    ) -> Any:
        target = "/" + "/".join(quote(part, safe="") for part in path)
        url = f"http://{self._host}:{self._port}{target}"
        address = self._address()
        if address is None:
            raise Unreachable(f"Connection error on url: {url}")
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = http.client.HTTPConnection(address, self._port, timeout=_SECONDS)
        headers["Host"] = f"[{self._host}]:{self._port}" if ":" in self._host else (
            f"{self._host}:{self._port}"
        )  # fmt: skip
        try:
            connection.request(method, target + ("?" + urlencode(query) if query else ""), body,
                               headers)  # fmt: skip
            return json.loads(connection.getresponse().read(_MOST_BYTES))
        except TimeoutError:
            raise Unreachable(f"Connection timeout on url: {url}") from None
        except (OSError, http.client.HTTPException, ValueError):
            raise Unreachable(f"Connection error on url: {url}") from None
        finally:
            connection.close()

    def _address(self) -> str | None:
        """Where to connect: on this host only to a server of our own user, which alone may read
        the commands. The address in numbers is what is checked, and what is connected to."""
        try:
            addresses = resolve(self._host)
        except UsageError:
            return None
        if not addresses.is_loopback or self._token is not None:
            return self._host
        for address in addresses.found:
            uid = listener_uid(address, self._port)
            if uid is not None:
                return address if uid == os.geteuid() else None
        return None
