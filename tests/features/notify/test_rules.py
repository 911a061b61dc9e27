"""WHEN[:WHERE]: parsing, and the places of a job's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from stoker.errors import UsageError
from stoker.features.notify.notify_settings import NotifySettings, resolve
from stoker.features.notify.rules import (
    EVENTS,
    NotifyRule,
    format_rules,
    is_place_name,
    parse_rules,
    places_for,
)

NAMES = some.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,20}", fullmatch=True)
RULES = some.builds(NotifyRule, some.sampled_from(EVENTS), some.none() | NAMES)


@given(some.lists(RULES, min_size=1, unique=True))
def test_rules_survive_formatting_and_parsing(rules: list[NotifyRule]) -> None:
    assert parse_rules(format_rules(tuple(rules))) == tuple(rules)


@given(some.text())
def test_any_text_is_parsed_or_refused_with_a_hint(text: str) -> None:
    try:
        rules = parse_rules(text)
    except UsageError as error:
        assert error.hint
    else:
        assert rules and all(rule.when in (*EVENTS, "none") for rule in rules)
        assert all(rule.where is None or is_place_name(rule.where) for rule in rules)
        assert parse_rules(format_rules(rules)) == rules


@given(some.lists(RULES, min_size=1), some.lists(NAMES, min_size=1, max_size=3, unique=True))
def test_resolved_rules_name_a_place_each(rules: list[NotifyRule], names: list[str]) -> None:
    known = {rule.where for rule in rules if rule.where is not None} | set(names)
    settings = NotifySettings(where=tuple(names), places=tuple(sorted(known)))
    text = resolve(tuple(rules), settings, False)
    assert text is not None
    for rule in rules:
        wanted = (rule.where,) if rule.where else tuple(names)
        assert set(wanted) <= set(places_for(text, (rule.when,)))


def test_all_stands_for_every_event() -> None:
    assert [rule.when for rule in parse_rules("all")] == list(EVENTS)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("fail", "did you mean `failure`?"),
        ("done", "did you mean `end`?"),
        ("timeout", "did you mean `time-limit`?"),
        ("sweep_end", "did you mean `sweep-end`?"),
        ("", "events: end, failure, first-failure, sweep-end, time-limit, gpu-lost; all or none"),
        ("end:", "write the name given to `stoker notify add`, e.g. failure:phone"),
        ("end:https://x", "write the name given to `stoker notify add`, e.g. failure:phone"),
        ("none:phone", "write none"),
        ("none,end", "use one of them"),
    ],
)
def test_mistakes_are_explained(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_rules(text)
    assert error.value.hint == hint


def test_job_without_rules_gets_those_of_the_settings() -> None:
    settings = NotifySettings(when="failure,end:lab", where=("phone",), places=("phone", "lab"))
    assert resolve(None, settings, True) == "failure:phone,end:lab"
    assert resolve(parse_rules("none"), settings, True) is None
    assert resolve(None, settings, False) is None
    assert resolve(parse_rules("end"), settings, True) == "end:phone"


def test_the_only_place_is_the_default() -> None:
    assert resolve(parse_rules("end"), NotifySettings(places=("phone",)), True) == "end:phone"
    with pytest.raises(UsageError, match="there are 2 places for notifications and no default"):
        resolve(parse_rules("end"), NotifySettings(places=("a", "b")), True)
    with pytest.raises(UsageError, match="there is no place for notifications yet"):
        resolve(parse_rules("end"), None, True)
    assert resolve(parse_rules("end:desktop"), None, True) == "end:desktop"
