"""Access control of the two servers. Scripts written for the original send no token.

A loopback connection is accepted if the process at the other end belongs to the user of the server;
all other connections need the token. In addition, the Host header must be one of the server's own
names, which prevents DNS rebinding, and requests of browsers must come from the server's own pages.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping

from stoker.web.http.addresses import host_values
from stoker.web.http.guard_request import GuardRequest, Refusal, refuse_site
from stoker.web.http.http_server import ServerSockets
from stoker.web.http.peers import own_uids

_ANY_ADDRESS = "0.0.0.0"  # scripts of the original connect to it; Linux uses 127.0.0.1


class Guard:
    def __init__(self, hosts: frozenset[str], token: str | None) -> None:
        self._hosts = hosts
        self._token = token

    def refuse(self, request: GuardRequest) -> Refusal | None:
        if not request.path.startswith("/"):
            return Refusal(400, "usage", "Bad request")
        if request.headers.get("host", "").lower() not in self._hosts:
            return Refusal(403, "wrong_host", "The Host header does not name this server")
        if request.uid not in own_uids() and not self._has_right_token(request.headers):
            text = "Only the user who started this server can use it without a token"
            return Refusal(401, "no_token", text, None if self._token is None else "basic")
        return refuse_site(request, self._hosts, opens_by_link=True)

    def is_suspect(self, request: GuardRequest) -> bool:
        return False  # the token is too long to be guessed

    def _has_right_token(self, headers: Mapping[str, str]) -> bool:
        if self._token is None:
            return False
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "basic":  # the login dialog of a browser; the user name is ignored
            given = _password(given)
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(given.strip().encode(), self._token.encode())


def _password(text: str) -> str:
    try:
        pair = base64.b64decode(text.strip(), validate=True).decode()
    except ValueError:
        return ""
    return pair.partition(":")[2]


def own_hosts(listening: ServerSockets, others: tuple[str, ...] = ()) -> frozenset[str]:
    """The accepted Host headers; `others` are names, or NAME:PORT for the end of a tunnel."""
    ports = {name.lower() for name in others if ":" in name}
    names = [name for name in others if ":" not in name]
    if listening.addresses.is_loopback:
        names.append(_ANY_ADDRESS)
    return host_values(listening.names(*names), listening.port) | ports
