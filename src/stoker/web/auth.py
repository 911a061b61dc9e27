"""Decide whether a request is allowed. The middleware calls the guard before anything else.

The checks, in this order:

1. The Host header is a name of this server (against DNS rebinding).
2. The client process belongs to the user of this server.
3. The request does not come from another site.
4. The request has the token or a valid session cookie.
5. A change is sent as JSON, with a header that an HTML form cannot send.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stoker.web.http.guard_request import CHANGES, TOO_MANY, GuardRequest, Refusal, refuse_site
from stoker.web.sessions import Keys

_WITHOUT_TOKEN = ("/api/login",)  # needs no token: this is where clients send it
_ALLOWED_READ_ONLY = ("/api/login", "/api/logout")  # also on a read-only server
_MAX_FAILURES = 10
_WINDOW_SECONDS = 60.0
_MAX_SOURCES = 1000


class Failures:
    """Counts recent wrong tokens by client address, to stop clients that guess."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: dict[str, list[float]] = {}

    def add(self, source: str) -> None:
        while len(self._times) >= _MAX_SOURCES:
            del self._times[next(iter(self._times))]
        self._times.setdefault(source, []).append(self._clock())

    def is_blocked(self, source: str) -> bool:
        recent = [at for at in self._times.pop(source, []) if self._clock() - at < _WINDOW_SECONDS]
        if recent:
            self._times[source] = recent[-_MAX_FAILURES:]
        return len(recent) >= _MAX_FAILURES


class Guard:
    def __init__(
        self,
        hosts: frozenset[str],
        keys: Keys,
        *,
        cookie: str,
        own_uids: frozenset[int] | None,
        read_only: bool = False,
        failures: Failures | None = None,
    ) -> None:
        self.keys = keys
        self.cookie = cookie
        self.read_only = read_only
        self.failures = failures or Failures()
        self._hosts = hosts
        self._own_uids = own_uids  # None: every user who has the token

    def refuse(self, request: GuardRequest) -> Refusal | None:
        """Return why the request is refused, or None when it is allowed."""
        refusal = self._refuse_host_or_user(request) or refuse_site(
            request,
            self._hosts,
            opens_by_link=not is_api(request.path),  # the static files contain no secrets
        )
        if refusal is not None:
            return refusal
        if not is_api(request.path):
            if request.method in ("GET", "HEAD"):
                return None
            return _wrong_method(request)
        if request.method not in ("GET", *CHANGES):
            return _wrong_method(request)
        has_cookie = False
        if request.path not in _WITHOUT_TOKEN:
            credential = self._authenticate(request)
            if isinstance(credential, Refusal):
                return credential
            has_cookie = credential == "cookie"
        return self._refuse_change(request, has_cookie) if request.method in CHANGES else None

    # -- host and user -------------------------------------------------------------------------

    def _refuse_host_or_user(self, request: GuardRequest) -> Refusal | None:
        if request.headers.get("host", "").lower() not in self._hosts:
            return Refusal(
                403,
                "wrong_host",
                "the Host header does not name this server",
                "use the same port at both ends of a tunnel",
            )
        # An unknown user (None) counts as another user.
        if self._own_uids is not None and request.uid not in self._own_uids:
            return Refusal(403, "other_user", "this server only answers the user who started it")
        return None

    # -- token and session ---------------------------------------------------------------------

    def _authenticate(self, request: GuardRequest) -> str | Refusal:
        """Return "token" or "cookie", whichever the request is allowed by."""
        given = request.headers.get("authorization")
        if given is not None:
            kind, _, token = given.partition(" ")
            if kind.lower() == "bearer" and self.keys.is_token(token.strip()):
                return "token"
            return self.wrong_token(request.source)
        if self.sessions_of(request):
            return "cookie"
        return Refusal(
            401,
            "no_token",
            "this server requires a token",
            "`stoker web status` prints a link with it",
        )

    def sessions_of(self, request: GuardRequest) -> list[str]:
        """The valid session cookies. There can be others: a server on another port of this host can
        set a cookie with the same name."""
        parts = (
            part.strip().partition("=") for part in request.headers.get("cookie", "").split(";")
        )
        found = dict.fromkeys(value for name, _, value in parts if name == self.cookie)
        client, now = self.client_of(request), time.time()
        return [session for session in found if self.keys.is_session(session, now, client)]

    def client_of(self, request: GuardRequest) -> str:
        """The client that a session is valid for. Browsers send a cookie to every port of a host:
        the server of another user can see it, and that user must not be able to use it."""
        if self._own_uids is not None:
            return "own user"  # requests of all other users are refused
        return request.source if request.uid is None else f"user {request.uid}"

    def is_still_allowed(self, request: GuardRequest) -> bool:
        """For streams: whether the same request would still be allowed now."""
        return "authorization" in request.headers or bool(self.sessions_of(request))

    def is_suspect(self, request: GuardRequest) -> bool:
        """Whether this client sent too many wrong tokens and this request may be another guess.

        A request that is refused in any case does not count: only a few guesses can be delayed at a
        time, and other users must not use these up.
        """
        has_guess = "authorization" in request.headers or request.path in _WITHOUT_TOKEN
        return (
            has_guess
            and self._refuse_host_or_user(request) is None
            and self.failures.is_blocked(request.source)
        )

    def wrong_token(self, source: str) -> Refusal:
        """Count a wrong token from this address; returns the refusal to send."""
        if self.failures.is_blocked(source):
            return TOO_MANY
        self.failures.add(source)
        return Refusal(
            401, "wrong_token", "wrong token", "`stoker web status` prints a link with it"
        )

    # -- changes -------------------------------------------------------------------------------

    def _refuse_change(self, request: GuardRequest, has_cookie: bool) -> Refusal | None:
        if has_cookie and request.headers.get("x-stoker") != "1":
            return Refusal(
                403, "no_header", "requests that change something need the header `X-Stoker: 1`"
            )
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return Refusal(
                415,
                "not_json",
                "requests that change something need the content type application/json",
            )
        if self.read_only and request.path not in _ALLOWED_READ_ONLY:
            return Refusal(
                403, "read_only", "this server is read-only; it was started with --read-only"
            )
        return None


def _wrong_method(request: GuardRequest) -> Refusal:
    return Refusal(405, "usage", f"method {request.method} is not allowed here")


def is_api(path: str) -> bool:
    return path in ("/api", "/metrics") or path.startswith("/api/")
