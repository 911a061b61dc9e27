"""Who may ask what. Plain values in, a refusal out; the gate asks before anything else happens.

In this order: the Host is exactly ours (a page that points its own name at this address is turned
away), the process at the other end is ours, no other site speaks through the browser, somebody has
the token or a session, and a change comes as JSON with a header that no form can send.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stoker.http.guard_request import CHANGES, TOO_MANY, GuardRequest, Refusal, refuse_site
from stoker.web.sessions import Keys

_OPEN_API = ("/api/login",)  # how one gets in
_STILL_ALLOWED = ("/api/login", "/api/logout")  # also where nothing may be changed
_FAILURES = 10
_WINDOW_SECONDS = 60.0
_MOST_SOURCES = 1000


class Failures:
    """Wrong tokens by where they came from; guessing is hopeless, and stopped all the same."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: dict[str, list[float]] = {}

    def add(self, source: str) -> None:
        while len(self._times) >= _MOST_SOURCES:
            del self._times[next(iter(self._times))]
        self._times.setdefault(source, []).append(self._clock())

    def is_over(self, source: str) -> bool:
        recent = [at for at in self._times.pop(source, []) if self._clock() - at < _WINDOW_SECONDS]
        if recent:
            self._times[source] = recent[-_FAILURES:]
        return len(recent) >= _FAILURES


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
        self._own_uids = own_uids  # None: everybody who has the token

    def refuse(self, asked: GuardRequest) -> Refusal | None:
        """Why a request is turned away; None: it may pass."""
        refusal = self._refuse_place(asked) or refuse_site(
            asked,
            self._hosts,
            opens_by_link=not is_api(asked.path),  # a page holds no secret
        )
        if refusal is not None:
            return refusal
        if not is_api(asked.path):
            if asked.method in ("GET", "HEAD"):
                return None
            return Refusal(405, "usage", f"{asked.method} makes no sense here")
        if asked.method not in ("GET", *CHANGES):
            return Refusal(405, "usage", f"{asked.method} makes no sense here")
        has_cookie = False
        if asked.path not in _OPEN_API:
            who = self._who(asked)
            if isinstance(who, Refusal):
                return who
            has_cookie = who == "cookie"
        return self._refuse_change(asked, has_cookie) if asked.method in CHANGES else None

    # -- where from ----------------------------------------------------------------------------

    def _refuse_place(self, asked: GuardRequest) -> Refusal | None:
        if asked.headers.get("host", "").lower() not in self._hosts:
            return Refusal(403, "wrong_host", "this is not an address of this server",
                           "a tunnel needs the same port at both ends")  # fmt: skip
        # None, a peer that is not known, is another user like any other.
        if self._own_uids is not None and asked.uid not in self._own_uids:
            return Refusal(403, "other_user", "this server answers its own user only")
        return None

    # -- who -----------------------------------------------------------------------------------

    def _who(self, asked: GuardRequest) -> str | Refusal:
        given = asked.headers.get("authorization")
        if given is not None:
            kind, _, token = given.partition(" ")
            if kind.lower() == "bearer" and self.keys.is_token(token.strip()):
                return "token"
            return self.wrong_token(asked.source)
        if self.sessions_of(asked):
            return "cookie"
        return Refusal(401, "no_token", "this server wants its token",
                       "`stoker web status` prints a link with it")  # fmt: skip

    def sessions_of(self, asked: GuardRequest) -> list[str]:
        """Those that are valid; servers on other ports of this host can add cookies of the name."""
        parts = (part.strip().partition("=") for part in asked.headers.get("cookie", "").split(";"))
        found = dict.fromkeys(value for name, _, value in parts if name == self.cookie)
        client, now = self.client_of(asked), time.time()
        return [one for one in found if self.keys.is_session(one, now, client)]

    def client_of(self, asked: GuardRequest) -> str:
        """Who a session belongs to. Browsers send a cookie to every port of a host, so another
        user's server there may get to see it: it must not be worth anything to that user."""
        if self._own_uids is not None:
            return "own user"  # nobody else is answered
        return asked.source if asked.uid is None else f"user {asked.uid}"

    def is_still_allowed(self, asked: GuardRequest) -> bool:
        """For answers that go on and on: whether the request would be answered now."""
        return "authorization" in asked.headers or bool(self.sessions_of(asked))

    def is_suspect(self, asked: GuardRequest) -> bool:
        """Whether this peer has guessed too often, and this may be another guess.

        Requests that are refused anyway are no guesses: other users must not use up the few places
        in which such requests wait.
        """
        tries = "authorization" in asked.headers or asked.path in _OPEN_API
        return tries and self._refuse_place(asked) is None and self.failures.is_over(asked.source)

    def wrong_token(self, source: str) -> Refusal:
        if self.failures.is_over(source):
            return TOO_MANY
        self.failures.add(source)
        return Refusal(401, "wrong_token", "this is not the token of this server",
                       "`stoker web status` prints a link with it")  # fmt: skip

    # -- changes -------------------------------------------------------------------------------

    def _refuse_change(self, asked: GuardRequest, has_cookie: bool) -> Refusal | None:
        if has_cookie and asked.headers.get("x-stoker") != "1":
            return Refusal(403, "no_header", "a change needs the header `X-Stoker: 1`")
        kind = asked.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return Refusal(415, "not_json", "a change has to come as application/json")
        if self.read_only and asked.path not in _STILL_ALLOWED:
            return Refusal(403, "read_only", "this page only shows; it was started by --read-only")
        return None


def is_api(path: str) -> bool:
    return path == "/api" or path.startswith("/api/")
