"""The token of the server, and what is signed with it: sessions for browsers, tickets for --open.

The token appears only in a private file, in the link that its owner requested, and in the one
request that exchanges it for a cookie. A ticket replaces it where other users can read along (the
arguments of a browser process): it is valid once, for one minute.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets

from stoker.errors import TryLater

SESSION_SECONDS = 30 * 86400
TICKET_SECONDS = 60


class Keys:
    """Issues and checks sessions and tickets. Both stay valid after a restart of the server."""

    def __init__(self, token: str, revoked: Revocations | None = None) -> None:
        self._token = token.encode()
        self._revoked = Revocations(None, 0) if revoked is None else revoked

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    # -- sessions ------------------------------------------------------------------------------

    def session(self, now: float, client: str) -> str:
        """A new cookie for this client: random text, the time when it expires, and a signature."""
        body = f"{secrets.token_urlsafe(18)}.{int(now) + SESSION_SECONDS}"
        return f"{body}.{self._sign('session', body, client)}"

    def is_session(self, given: str, now: float, client: str) -> bool:
        return self._is_signed("session", given, now, client) and given not in self._revoked

    def revoke(self, session: str) -> None:
        """Make a session invalid; raises TryLater when that cannot be saved."""
        self._revoked.add(session, _expiry(session))

    # -- tickets -------------------------------------------------------------------------------

    def ticket(self, now: float) -> str:
        body = f"{secrets.token_urlsafe(18)}.{int(now) + TICKET_SECONDS}"
        return f"{body}.{self._sign('ticket', body)}"

    def use_ticket(self, given: str, now: float) -> bool:
        """Return whether the ticket is valid; it is not any more afterwards."""
        if not self._is_signed("ticket", given, now) or given in self._revoked:
            return False
        self._revoked.add(given, _expiry(given))
        return True

    # -- signatures ----------------------------------------------------------------------------

    def _is_signed(self, purpose: str, given: str, now: float, client: str = "") -> bool:
        body, _, signature = given.rpartition(".")
        expected = self._sign(purpose, body, client)
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), expected.encode()):
            return False
        return now < _expiry(given)

    def _sign(self, purpose: str, body: str, client: str = "") -> str:
        text = f"stoker {purpose} {body} {client}".encode("utf-8", "replace")
        digest = hmac.new(self._token, text, hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _expiry(given: str) -> int:
    """When a signed session or ticket expires; 0 when the text has no such time."""
    end = given.rpartition(".")[0].rpartition(".")[2]
    return int(end) if end.isascii() and end.isdigit() else 0


class Revocations:
    """A file with one line for each: a hash (the text itself is a secret) and when it expires."""

    def __init__(self, path: str | None, now: float) -> None:
        """With `path=None`, revocations are kept in memory only."""
        self._path = path
        self._expiries: dict[str, int] = {}
        if path is None:
            return
        lines = _lines(path)
        for line in lines:
            digest, _, end = line.partition(" ")
            if end.isdigit() and int(end) > now:
                self._expiries[digest] = int(end)
        if len(self._expiries) < len(lines):  # some have expired
            self._rewrite(path)

    def __contains__(self, text: str) -> bool:
        return _digest(text) in self._expiries

    def add(self, text: str, end: int) -> None:
        """Revoke, also across a crash; raises TryLater when the file cannot be written."""
        digest = _digest(text)
        if digest in self._expiries:
            return
        self._expiries[digest] = end
        if self._path is None:
            return
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._path, flags, 0o600)
            try:
                os.write(descriptor, f"{digest} {end}\n".encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            del self._expiries[digest]
            raise TryLater(
                f"cannot write `{self._path}`: {error.strerror}", "the cookie is still valid"
            ) from None

    def _rewrite(self, path: str) -> None:
        temporary = f"{path}.new"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            with open(os.open(temporary, flags, 0o600), "w", encoding="ascii") as file:
                file.writelines(f"{digest} {end}\n" for digest, end in self._expiries.items())
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, path)
        except OSError:
            pass  # the longer file means the same


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        # Without the file, sessions that were logged out would be valid again.
        raise TryLater(f"cannot read `{path}`: {error.strerror}") from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
