"""Parts that need no server."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stoker.errors import TryLater
from stoker.http.guard_request import GuardRequest
from stoker.web.auth import Failures, Guard
from stoker.web.revocations import Revocations
from stoker.web.sessions import SESSION_SECONDS, TICKET_SECONDS, Keys
from stoker.web.throttled_cache import ThrottledCache


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_costly_value_is_found_again_after_a_multiple_of_its_cost() -> None:
    clock = Clock()
    paced: ThrottledCache[int] = ThrottledCache(factor=10, clock=clock)
    found = []

    def find() -> int:
        clock.now += 2
        found.append(clock.now)
        return len(found)

    assert paced.get("a", find) == 1
    assert paced.late() == 0  # nothing old was given out
    clock.now += 19
    assert paced.get("a", find) == 1
    assert 0 < paced.late() <= 1
    clock.now += 2
    assert paced.get("a", find) == 2
    assert paced.late() == 0


def test_a_forgotten_value_is_found_at_once() -> None:
    paced: ThrottledCache[list[int]] = ThrottledCache(least=100)
    first = paced.get("a", list)
    assert paced.get("a", list) is first
    paced.forget("a")
    assert paced.get("a", list) is not first


def test_sessions_and_tickets_end_and_do_not_stand_for_each_other() -> None:
    keys = Keys("x" * 40)
    session, ticket = keys.session(0, "me"), keys.ticket(0)
    assert keys.is_session(session, SESSION_SECONDS - 1, "me")
    assert not keys.is_session(session, SESSION_SECONDS + 1, "me")
    assert not keys.is_session(session, 1, "192.0.2.1")
    assert not keys.is_session(ticket, 1, "me")
    assert not keys.use_ticket(session, 1)
    assert not keys.use_ticket(ticket, TICKET_SECONDS + 1)
    assert not Keys("y" * 40).is_session(session, 1, "me")


def test_revocations_last_until_what_they_end_would_have_ended(tmp_path: Path) -> None:
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
    assert len(path.read_text().splitlines()) == 1  # that of `late`
    assert path.stat().st_mode & 0o777 == 0o600


def test_revocation_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    keys = Keys("x" * 40, Revocations(str(tmp_path / "missing" / "revoked"), 0))
    session = keys.session(0, "me")
    with pytest.raises(TryLater):
        keys.revoke(session)


def test_session_of_another_machine_or_user_is_not_valid() -> None:
    """At an address that other machines reach, where users are not told apart by the kernel."""
    keys = Keys("x" * 40)
    guard = Guard(frozenset({"h:1"}), keys, cookie="c", own_uids=None)
    peers = [("192.0.2.1", None), ("192.0.2.2", None), ("192.0.2.9", 1000), ("192.0.2.9", 1001)]

    def asked(peer: tuple[str, int | None], cookie: str = "") -> GuardRequest:
        return GuardRequest("GET", "/api/overview", {"host": "h:1", "cookie": f"c={cookie}"}, *peer)

    for owner in peers:
        cookie = keys.session(time.time(), guard.client_of(asked(owner)))
        for peer in peers:
            refused = guard.refuse(asked(peer, cookie))
            assert (refused is None) == (peer == owner)


def test_cookie_of_another_server_hides_no_valid_one() -> None:
    keys = Keys("x" * 40)
    guard = Guard(frozenset({"h:1"}), keys, cookie="c", own_uids=frozenset({1000}))
    asked = GuardRequest("GET", "/api/overview", {"host": "h:1"}, "127.0.0.1", 1000)
    cookie = keys.session(time.time(), guard.client_of(asked))
    sent = {"host": "h:1", "cookie": f"c=evil; c={cookie}; c="}
    assert guard.refuse(asked._replace(headers=sent)) is None


def test_failures_are_forgotten_after_a_minute_and_counted_by_source() -> None:
    clock = Clock()
    failures = Failures(clock)
    for _ in range(10):
        assert not failures.is_over("a")
        failures.add("a")
    assert failures.is_over("a")
    assert not failures.is_over("b")
    clock.now += 61
    assert not failures.is_over("a")


def test_nobody_and_others_are_refused_where_users_are_checked() -> None:
    guard = Guard(
        frozenset({"h:1"}), Keys("x" * 40), cookie="c", own_uids=frozenset({0, 1000})
    )  # fmt: skip

    def code(uid: int | None) -> str | None:
        refused = guard.refuse(GuardRequest("GET", "/", {"host": "h:1"}, "127.0.0.1", uid))
        return None if refused is None else refused.code

    assert code(1000) is None
    assert code(1001) == code(-1) == code(None) == "other_user"


def test_requests_of_other_users_do_not_wait_where_guesses_wait() -> None:
    """There are few such places, and the owner may need one after wrong tokens of an old script."""
    guard = Guard(frozenset({"h:1"}), Keys("x" * 40), cookie="c", own_uids=frozenset({1000}))
    sent = {"host": "h:1", "authorization": "Bearer guess"}
    own = GuardRequest("GET", "/api/overview", sent, "127.0.0.1", 1000)
    assert not guard.is_suspect(own)
    for _ in range(10):
        guard.refuse(own)
    assert guard.is_suspect(own)
    assert not guard.is_suspect(own._replace(uid=1001))
    assert not guard.is_suspect(own._replace(headers={**sent, "host": "evil"}))
