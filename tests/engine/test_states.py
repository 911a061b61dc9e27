"""All pairs of states and events. The table is repeated here on purpose."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from stoker import states
from stoker.states import ACTIVE, EVENTS, FINAL, STATES, TABLE, WAITING, IllegalTransition, advance

ENDS = {
    "return": "queued",
    "succeed": "done",
    "fail": "failed",
    "cancel": "cancelled",
    "lose": "lost",
}
MOVES = {
    ("held", "release"): "queued",
    ("held", "cancel"): "cancelled",
    ("queued", "hold"): "held",
    ("queued", "claim"): "starting",
    ("queued", "submit"): "submitted",
    ("queued", "cancel"): "cancelled",
    ("submitted", "begin"): "running",
    ("submitted", "stop"): "stopping",
    ("starting", "begin"): "running",
    ("starting", "stop"): "stopping",
    ("running", "stop"): "stopping",
    **{(state, event): end for state in ACTIVE for event, end in ENDS.items()},
}


@pytest.mark.parametrize(("state", "event"), list(product(STATES, EVENTS)))
def test_event_changes_the_state_as_listed_or_is_refused(state: str, event: str) -> None:
    expected = MOVES.get((state, event))
    if expected is None:
        with pytest.raises(IllegalTransition, match=f"'{event}' in state '{state}'"):
            advance(state, event)
    else:
        assert advance(state, event) == expected


def test_unknown_states_and_events_are_refused() -> None:
    for state, event in (("queued", "explode"), ("nowhere", "claim")):
        with pytest.raises(IllegalTransition):
            advance(state, event)


@pytest.mark.parametrize("state", FINAL)
def test_final_state_never_changes(state: str) -> None:
    assert TABLE[state] == {}


def test_every_state_that_is_not_final_can_end() -> None:
    for state in (*WAITING, *ACTIVE):
        assert TABLE[state]["cancel"] == "cancelled"


def test_every_state_is_reached_from_submission() -> None:
    reached, fresh = set(), {states.HELD, states.QUEUED}
    while fresh:
        reached |= fresh
        fresh = {end for state in fresh for end in TABLE[state].values()} - reached
    assert reached == set(STATES)


def test_every_state_belongs_to_one_group() -> None:
    assert sorted(STATES) == sorted({*WAITING, *ACTIVE, *FINAL}) == sorted(TABLE)


def test_every_event_is_described_and_used() -> None:
    assert set(EVENTS) == {event for moves in TABLE.values() for event in moves}


def test_page_about_states_is_current() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, root / "docs" / "generate.py", "--check", "states.md"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
