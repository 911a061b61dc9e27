"""The secret of the page, and what is derived from it: sessions for browsers, tickets for --open.

The token itself is only ever in a private file, in the link that its owner asked for, and in the
one request that exchanges it for a cookie. A ticket stands in for it where others could read along
(the arguments of a browser's process): it works once and for a minute.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import stat

from stoker.errors import NoPermission, UsageError

_BYTES = 32
_SHORTEST = 32  # characters of a token that a user brings
SESSION_SECONDS = 30 * 86400
TICKET_SECONDS = 60


def load_token(path: str) -> str:
    """The token in this file; made when there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return _make(path)
    except OSError as error:
        raise UsageError(f"cannot read the token file `{path}`: {error.strerror}") from None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
            raise NoPermission(f"the token file `{path}` is not a file of yours")
        if info.st_mode & 0o077:
            raise NoPermission(
                f"the token file `{path}` is open to other users", f"chmod 600 {path}"
            )
        text = os.read(descriptor, 4096).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    if len(text) < _SHORTEST or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(
            f"the token file `{path}` holds no token of {_SHORTEST} or more characters",
            "remove it, and a good one is made",
        )
    return text


def _make(path: str) -> str:
    token = secrets.token_urlsafe(_BYTES)
    try:
        # Under another name first: whoever reads finds a whole token or none.
        part = f"{path}.{os.getpid()}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(part, flags, 0o600)
        try:
            os.write(descriptor, f"{token}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(part, path)
    except OSError as error:
        raise UsageError(f"cannot write the token file `{path}`: {error.strerror}") from None
    return token


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
