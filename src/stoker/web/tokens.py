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

SESSION_SECONDS = 30 * 86400
TICKET_SECONDS = 60


class Keys:
    """What follows from a token. A session outlives the server, since the token does."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._revoked: dict[str, None] = {}
        self._used: dict[str, float] = {}

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    # -- sessions ------------------------------------------------------------------------------

    def session(self, now: float) -> str:
        """A new cookie: chance, when it ends, and our signature."""
        body = f"{secrets.token_urlsafe(18)}.{int(now) + SESSION_SECONDS}"
        return f"{body}.{self._sign('session', body)}"

    def is_session(self, given: str, now: float) -> bool:
        return given not in self._revoked and self._is_signed("session", given, now)

    def revoke(self, given: str) -> None:
        self._revoked[given] = None
        while len(self._revoked) > 1000:
            del self._revoked[next(iter(self._revoked))]

    # -- tickets -------------------------------------------------------------------------------

    def ticket(self, now: float) -> str:
        body = f"{secrets.token_urlsafe(18)}.{int(now) + TICKET_SECONDS}"
        return f"{body}.{self._sign('ticket', body)}"

    def use_ticket(self, given: str, now: float) -> bool:
        """Whether it lets somebody in: once."""
        if not self._is_signed("ticket", given, now) or given in self._used:
            return False
        self._used = {one: until for one, until in self._used.items() if until > now}
        self._used[given] = now + TICKET_SECONDS
        return True

    # -- signatures ----------------------------------------------------------------------------

    def _is_signed(self, purpose: str, given: str, now: float) -> bool:
        body, _, signature = given.rpartition(".")
        end = body.rpartition(".")[2]
        if not hmac.compare_digest(signature.encode(), self._sign(purpose, body).encode()):
            return False
        return end.isdigit() and now < int(end)

    def _sign(self, purpose: str, body: str) -> str:
        text = f"stoker {purpose} {body}".encode("utf-8", "replace")
        digest = hmac.new(self._token, text, hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")
