"""Parts that need no server."""

from __future__ import annotations

from stoker.http.asked import Asked
from stoker.web.guard import Failures, Guard
from stoker.web.paced import Paced
from stoker.web.tokens import SESSION_SECONDS, TICKET_SECONDS, Keys


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_costly_value_is_found_again_after_a_multiple_of_its_cost() -> None:
    clock = Clock()
    paced: Paced[int] = Paced(factor=10, clock=clock)
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
    paced: Paced[list[int]] = Paced(least=100)
    first = paced.get("a", list)
    assert paced.get("a", list) is first
    paced.forget("a")
    assert paced.get("a", list) is not first


def test_sessions_and_tickets_end_and_do_not_stand_for_each_other() -> None:
    keys = Keys("x" * 40)
    session, ticket = keys.session(0), keys.ticket(0)
    assert keys.is_session(session, SESSION_SECONDS - 1)
    assert not keys.is_session(session, SESSION_SECONDS + 1)
    assert not keys.is_session(ticket, 1)
    assert not keys.use_ticket(session, 1)
    assert not keys.use_ticket(ticket, TICKET_SECONDS + 1)
    assert not Keys("y" * 40).is_session(session, 1)


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
        refused = guard.refuse(Asked("GET", "/", {"host": "h:1"}, "127.0.0.1", uid))
        return None if refused is None else refused.code

    assert code(1000) is None
    assert code(1001) == code(-1) == code(None) == "other_user"
