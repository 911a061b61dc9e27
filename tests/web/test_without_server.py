"""Tests of the web package that need no server."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stoker.client.throttled_cache import ThrottledCache
from stoker.errors import TryLater
from stoker.web.auth import Failures, Guard
from stoker.web.http.guard_request import GuardRequest
from stoker.web.sessions import SESSION_SECONDS, TICKET_SECONDS, Keys, Revocations


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_cached_value_expires_after_a_multiple_of_its_cost() -> None:
    clock = Clock()
    cache: ThrottledCache[int] = ThrottledCache(factor=10, clock=clock)
    found = []

    def compute() -> int:
        clock.now += 2
        found.append(clock.now)
        return len(found)

    assert cache.get("a", compute) == 1
    assert cache.seconds_until_fresh() == 0  # no cached value was returned
    clock.now += 19
    assert cache.get("a", compute) == 1
    assert 0 < cache.seconds_until_fresh() <= 1
    clock.now += 2
    assert cache.get("a", compute) == 2
    assert cache.seconds_until_fresh() == 0


def test_invalidated_value_is_computed_at_once() -> None:
    cache: ThrottledCache[list[int]] = ThrottledCache(min_seconds=100)
    first = cache.get("a", list)
    assert cache.get("a", list) is first
    cache.invalidate("a")
    assert cache.get("a", list) is not first


def test_threads_that_ask_at_the_same_time_share_one_computation() -> None:
    cache: ThrottledCache[int] = ThrottledCache(min_seconds=100)
    computed: list[int] = []
    has_begun, may_end = threading.Event(), threading.Event()

    def compute() -> int:
        computed.append(1)
        has_begun.set()
        may_end.wait()
        return len(computed)

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(cache.get, "a", compute)
        has_begun.wait()
        others = [pool.submit(cache.get, "a", compute) for _ in range(3)]
        may_end.set()
        assert [one.result() for one in (first, *others)] == [1, 1, 1, 1]
    assert computed == [1]


def test_value_that_was_invalidated_while_it_was_computed_is_not_kept() -> None:
    cache: ThrottledCache[int] = ThrottledCache(min_seconds=100)

    def compute() -> int:
        cache.invalidate("a")
        return 1

    assert cache.get("a", compute) == 1
    assert cache.get("a", lambda: 2) == 2
    assert cache.get("a", lambda: 3) == 2


def test_failed_computation_is_repeated() -> None:
    cache: ThrottledCache[int] = ThrottledCache()
    with pytest.raises(ZeroDivisionError):
        cache.get("a", lambda: 1 // 0)
    assert cache.get("a", lambda: 2) == 2


def test_sessions_and_tickets_expire_and_cannot_replace_each_other() -> None:
    keys = Keys("x" * 40)
    session, ticket = keys.session(0, "me"), keys.ticket(0)
    assert keys.is_session(session, SESSION_SECONDS - 1, "me")
    assert not keys.is_session(session, SESSION_SECONDS + 1, "me")
    assert not keys.is_session(session, 1, "192.0.2.1")
    assert not keys.is_session(ticket, 1, "me")
    assert not keys.use_ticket(session, 1)
    assert not keys.use_ticket(ticket, TICKET_SECONDS + 1)
    assert not Keys("y" * 40).is_session(session, 1, "me")


def test_revocations_are_kept_until_the_session_would_have_expired(tmp_path: Path) -> None:
    path = tmp_path / "revoked"
    keys = Keys("x" * 40, Revocations(str(path), 0))
    early, late, open_one = keys.session(0, "me"), keys.session(100, "me"), keys.session(0, "me")
    ticket = keys.ticket(0)
    keys.revoke(early)
    keys.revoke(late)
    assert keys.use_ticket(ticket, 1)
    again = Keys("x" * 40, Revocations(str(path), 2))
    assert [again.is_session(one, 2, "me") for one in (early, late, open_one)] == [
        False, False, True,
    ]  # fmt: skip
    assert not again.use_ticket(ticket, 2)
    assert early not in path.read_text() and ticket not in path.read_text()
    Revocations(str(path), SESSION_SECONDS + 50)
    assert len(path.read_text().splitlines()) == 1  # of `late`
    assert path.stat().st_mode & 0o777 == 0o600


def test_revocation_that_cannot_be_saved_is_an_error(tmp_path: Path) -> None:
    keys = Keys("x" * 40, Revocations(str(tmp_path / "missing" / "revoked"), 0))
    session = keys.session(0, "me")
    with pytest.raises(TryLater):
        keys.revoke(session)


def test_session_of_another_machine_or_user_is_not_valid() -> None:
    """At an address that other machines can reach, the kernel does not know the user."""
    keys = Keys("x" * 40)
    guard = Guard(frozenset({"h:1"}), keys, cookie="c", own_uids=None)
    peers = [("192.0.2.1", None), ("192.0.2.2", None), ("192.0.2.9", 1000), ("192.0.2.9", 1001)]

    def request_of(peer: tuple[str, int | None], cookie: str = "") -> GuardRequest:
        return GuardRequest("GET", "/api/overview", {"host": "h:1", "cookie": f"c={cookie}"}, *peer)

    for owner in peers:
        cookie = keys.session(time.time(), guard.client_of(request_of(owner)))
        for peer in peers:
            refused = guard.refuse(request_of(peer, cookie))
            assert (refused is None) == (peer == owner)


def test_valid_cookie_is_found_beside_a_cookie_of_another_server() -> None:
    keys = Keys("x" * 40)
    guard = Guard(frozenset({"h:1"}), keys, cookie="c", own_uids=frozenset({1000}))
    request = GuardRequest("GET", "/api/overview", {"host": "h:1"}, "127.0.0.1", 1000)
    cookie = keys.session(time.time(), guard.client_of(request))
    sent = {"host": "h:1", "cookie": f"c=evil; c={cookie}; c="}
    assert guard.refuse(request._replace(headers=sent)) is None


def test_wrong_tokens_are_counted_by_client_and_expire_after_a_minute() -> None:
    clock = Clock()
    failures = Failures(clock)
    for _ in range(10):
        assert not failures.is_blocked("a")
        failures.add("a")
    assert failures.is_blocked("a")
    assert not failures.is_blocked("b")
    clock.now += 61
    assert not failures.is_blocked("a")


def test_unknown_and_other_users_are_refused() -> None:
    guard = Guard(
        frozenset({"h:1"}), Keys("x" * 40), cookie="c", own_uids=frozenset({0, 1000})
    )  # fmt: skip

    def code(uid: int | None) -> str | None:
        refused = guard.refuse(GuardRequest("GET", "/", {"host": "h:1"}, "127.0.0.1", uid))
        return None if refused is None else refused.code

    assert code(1000) is None
    assert code(1001) == code(-1) == code(None) == "other_user"


def test_requests_of_other_users_are_not_delayed_like_guesses() -> None:
    """Few requests can be delayed at a time; the owner of an old script may need one of them."""
    guard = Guard(frozenset({"h:1"}), Keys("x" * 40), cookie="c", own_uids=frozenset({1000}))
    sent = {"host": "h:1", "authorization": "Bearer guess"}
    own = GuardRequest("GET", "/api/overview", sent, "127.0.0.1", 1000)
    assert not guard.is_suspect(own)
    for _ in range(10):
        guard.refuse(own)
    assert guard.is_suspect(own)
    assert not guard.is_suspect(own._replace(uid=1001))
    assert not guard.is_suspect(own._replace(headers={**sent, "host": "evil"}))
