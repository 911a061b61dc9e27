"""HTTP client of the web page and `gpupeasy submit`; uses the public routes of the server."""

from __future__ import annotations

import http.client
import json
import os
from typing import Any
from urllib.parse import quote, urlencode

from stoker.errors import UsageError
from stoker.web.http.addresses import resolve
from stoker.web.http.peers import listener_uid

_TIMEOUT_SECONDS = 30.0
_MAX_BYTES = 64 << 20


class Unreachable(Exception):
    """The server did not respond, or belongs to another user."""


class Backend:
    def __init__(self, host: str, port: int, token: str | None = None) -> None:
        # Start scripts of the original pass the address that the server listens on.
        self._host = "127.0.0.1" if host in ("0.0.0.0", "") else host
        self._port = port
        self._token = token

    def get(self, *path: str, **query: object) -> Any:
        return self._request("GET", path, query, None)

    def post(self, *path: str, data: object = None) -> Any:
        return self._request("POST", path, {}, json.dumps(data).encode())

    def _request(
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
        connection = http.client.HTTPConnection(address, self._port, timeout=_TIMEOUT_SECONDS)
        headers["Host"] = (
            f"[{self._host}]:{self._port}" if ":" in self._host else (f"{self._host}:{self._port}")
        )
        try:
            connection.request(
                method, target + ("?" + urlencode(query) if query else ""), body, headers
            )
            return json.loads(connection.getresponse().read(_MAX_BYTES))
        except TimeoutError:
            raise Unreachable(f"Connection timeout on url: {url}") from None
        except (OSError, http.client.HTTPException, ValueError):
            raise Unreachable(f"Connection error on url: {url}") from None
        finally:
            connection.close()

    def _address(self) -> str | None:
        """The address to connect to; None if there is no server that may read the commands.

        On this host, the server must belong to the current user. The numeric address that was
        checked is the one that is used for the connection.
        """
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
