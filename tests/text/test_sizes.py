"""Sizes in bytes: parsing and formatting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.text.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1024", 1024),
        ("1k", 1024),
        ("1KiB", 1024),
        ("1.5M", 3 << 19),
        ("20G", 20 << 30),
        ("20GiB", 20 << 30),
        (" 2T ", 2 << 40),
        ("100b", 100),
    ],
)
def test_size_is_read_in_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "size"),
    [("1kB", 1000), ("20gb", 20 * 10**9), ("1.5MB", 1_500_000), ("2TB", 2 * 10**12)],
)
def test_size_with_a_decimal_unit_is_read_in_powers_of_1000(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "G", "b", "ib", "-1G", "1x", "1e9", "1..5G", ".", "²", "²G", "٣", "inf", "nan", "1 G",
     "9" * 400, "9" * 5000 + "T", "1\0"],
    ids=lambda text: ascii(text)[:20],
)  # fmt: skip
def test_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        parse_size(text)


@given(st.text(alphabet="0123456789.kmgtib ²٣", max_size=30) | st.text(max_size=10))
def test_any_text_is_a_size_or_a_usage_error(text: str) -> None:
    try:
        assert 0 <= parse_size(text) <= 1 << 62
    except UsageError:
        pass


@given(st.integers(0, 1 << 50))
def test_formatted_size_reads_back_within_its_digits(size: int) -> None:
    assert abs(parse_size(format_size(size).replace(" ", "")) - size) <= size * 0.05 + 1
