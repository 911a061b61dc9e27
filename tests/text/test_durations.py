"""Parsing and formatting of durations and sizes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.text.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1d", 86400),
        ("1w", 604800),
        ("1h30m", 5400),
        ("1d2h3m4s", 93784),
        ("1.5h", 5400),
        (".5m", 30),
        ("0", 0),
        ("10", 600),
        (" 10M ", 600),
        ("2:30", 150),
        ("01:30:00", 5400),
        ("1-00:00:00", 86400),
        ("2-12:30", 2 * 86400 + 12 * 3600 + 30 * 60),
    ],
)
def test_duration_is_parsed_like_slurm_and_sleep(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


def test_bare_number_is_in_the_unit_of_the_flag() -> None:
    assert (parse_duration("5"), parse_duration("5", "s"), parse_duration("5", "h")) == (
        300,
        5,
        18000,
    )


BAD = [
    "", " ", "s", "x", "5x", "-5m", "+5m", "1h30", "0h5", "1 h", "1..5h", ".", ".s", "1e3", "inf",
    "nan", ":", "1:", ":30", "1:2:3:4", "-1:00", "1-", "1-2", "a-1:00", "1:-5", "²", "²:30", "٣m",
    "1_000", "9" * 400, "9" * 400 + "d", "9" * 5000 + ":00", "1-" + "9" * 400 + ":00:00", "1\0m",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=lambda text: ascii(text)[:20])
def test_invalid_duration_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration(text)
    assert f"`{text}`" in caught.value.message
    assert caught.value.hint is not None


@given(st.text(alphabet="0123456789.:-smhdw ²٣\n", max_size=30) | st.text(max_size=10))
@example("9" * 5000)
def test_any_text_is_a_duration_or_a_usage_error(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except UsageError:
        return
    assert 0 <= seconds <= 1e10
    format_duration(seconds)


@given(st.integers(0, 10**9))
def test_seconds_survive_the_units(seconds: int) -> None:
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    assert parse_duration(f"{days}d{hours}h{minutes}m{left}s") == seconds
    assert parse_duration(f"{days}-{hours:02}:{minutes:02}:{left:02}") == seconds
    assert parse_duration(f"{seconds}s") == parse_duration(str(seconds), "s") == seconds


@given(st.floats(0, 1e9))
def test_formatted_duration_reads_back_to_the_last_unit_shown(seconds: float) -> None:
    step = 0.1 if seconds < 10 else 1 if seconds < 3600 else 60 if seconds < 86400 else 3600
    assert abs(parse_duration(format_duration(seconds)) - seconds) <= step


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0.0s"),
        (-0.0, "0.0s"),
        (0, "0.0s"),
        (9.94, "9.9s"),
        (10, "10s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (3599, "59m59s"),
        (3600, "1h00m"),
        (86400, "1d00h"),
        (8640000, "100d00h"),
    ],
)
def test_duration_is_shown_in_two_units_at_most(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
