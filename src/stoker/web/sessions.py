"""The secret of the page, and what is derived from it: sessions for browsers, tickets for --open.

The token itself is only ever in a private file, in the link that its owner asked for, and in the
one request that exchanges it for a cookie. A ticket stands in for it where others could read along
(the arguments of a browser's process): it works once and for a minute.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

from stoker.web.revocations import Revocations

SESSION_SECONDS = 30 * 86400
TICKET_SECONDS = 60


class Keys:
    """What follows from a token. A session outlives the server, since the token does."""

    def __init__(self, token: str, over: Revocations | None = None) -> None:
        self._token = token.encode()
        self._over = Revocations(None, 0) if over is None else over

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    # -- sessions ------------------------------------------------------------------------------

    def session(self, now: float, client: str) -> str:
        """A new cookie for this client: random text, when it ends, and our signature."""
        body = f"{secrets.token_urlsafe(18)}.{int(now) + SESSION_SECONDS}"
        return f"{body}.{self._sign('session', body, client)}"

    def is_session(self, given: str, now: float, client: str) -> bool:
        return self._is_signed("session", given, now, client) and given not in self._over

    def revoke(self, session: str) -> None:
        """End a session for good."""
        self._over.add(session, _end(session))

    # -- tickets -------------------------------------------------------------------------------

    def ticket(self, now: float) -> str:
        body = f"{secrets.token_urlsafe(18)}.{int(now) + TICKET_SECONDS}"
        return f"{body}.{self._sign('ticket', body)}"

    def use_ticket(self, given: str, now: float) -> bool:
        """Whether it lets its bearer in: once."""
        if not self._is_signed("ticket", given, now) or given in self._over:
            return False
        self._over.add(given, _end(given))
        return True

    # -- signatures ----------------------------------------------------------------------------

    def _is_signed(self, purpose: str, given: str, now: float, client: str = "") -> bool:
        body, _, signature = given.rpartition(".")
        wanted = self._sign(purpose, body, client)
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), wanted.encode()):
            return False
        return now < _end(given)

    def _sign(self, purpose: str, body: str, client: str = "") -> str:
        text = f"stoker {purpose} {body} {client}".encode("utf-8", "replace")
        digest = hmac.new(self._token, text, hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _end(given: str) -> int:
    """When a session or a ticket that we signed ends."""
    end = given.rpartition(".")[0].rpartition(".")[2]
    return int(end) if end.isascii() and end.isdigit() else 0
