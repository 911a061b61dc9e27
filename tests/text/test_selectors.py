"""Job selectors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.states import ACTIVE, FINAL, STATES, WAITING
from stoker.text.selectors import Selector, parse_selector


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [("7", 7, 7), ("0", 0, 0), ("3-9", 3, 9), ("3..9", 3, 9), ("5-5", 5, 5), ("007", 7, 7)],
)
def test_numbers_are_ids_and_ranges(text: str, first: int, last: int) -> None:
    assert parse_selector(text) == Selector(text, first=first, last=last)


def test_id_beyond_all_ids_fits_the_database() -> None:
    found = parse_selector("1-" + "9" * 19)
    assert found.last is not None and found.last < 2**63


@pytest.mark.parametrize(("text", "back"), [("@", 0), ("@~0", 0), ("@~1", 1), ("@~12", 12)])
def test_at_sign_counts_from_the_last_job(text: str, back: int) -> None:
    assert parse_selector(text) == Selector(text, back=back)


@pytest.mark.parametrize("state", STATES)
def test_state_selects_its_jobs(state: str) -> None:
    assert parse_selector(state).states == parse_selector(f"state:{state}").states == (state,)


@pytest.mark.parametrize(
    ("word", "states"),
    [("waiting", WAITING), ("active", ACTIVE), ("final", FINAL), ("all", STATES)],
)
def test_groups_select_their_states(word: str, states: tuple[str, ...]) -> None:
    assert parse_selector(word).states == states


@pytest.mark.parametrize(
    "text", ["train", "lr-3", "3-x", "x-3", "1-2-3", "3..", "-5", "1.5", "²", "9" * 20, "tag:"]
)
def test_anything_else_is_a_name_or_tag(text: str) -> None:
    assert parse_selector(text) == Selector(text, tag=text, name=text)


@pytest.mark.parametrize("word", ["7", "all", "running", "@", "3-9"])
def test_prefix_makes_any_word_a_name_or_tag(word: str) -> None:
    assert parse_selector(f"name:{word}") == Selector(f"name:{word}", name=word)
    assert parse_selector(f"tag:{word}") == Selector(f"tag:{word}", tag=word)


def test_hint_about_a_reversed_range_has_the_right_order() -> None:
    with pytest.raises(UsageError) as caught:
        parse_selector("9-3")
    assert caught.value.hint == "write 3-9"


@pytest.mark.parametrize("text", ["", "@@", "@1", "@~", "@~x", "@~-1"])
def test_invalid_selector_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_selector(text)


@given(st.text(max_size=30) | st.text(alphabet="0123456789@~-.:", max_size=30))
def test_any_text_is_one_kind_of_selector_or_a_usage_error(text: str) -> None:
    try:
        found = parse_selector(text)
    except UsageError:
        return
    assert found.text == text
    kinds = (found.first, found.back, found.states, found.name or found.tag)
    assert sum(kind is not None for kind in kinds) == 1
    assert (found.first is None) == (found.last is None)
