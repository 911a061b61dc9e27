"""The indices of job arrays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.text.array_indexes import MAX_JOBS, Array, format_indexes, parse_array


@pytest.mark.parametrize(
    ("text", "indexes", "most"),
    [
        ("7", (7,), None),
        ("0-3", (0, 1, 2, 3), None),
        ("0-15:4", (0, 4, 8, 12), None),
        ("1,3,5-7%2", (1, 3, 5, 6, 7), 2),
        ("5-7,1,6", (1, 5, 6, 7), None),
        ("0-9:5,2%1", (0, 2, 5), 1),
    ],
)
def test_indices_are_parsed_as_in_slurm(
    text: str, indexes: tuple[int, ...], most: int | None
) -> None:
    assert parse_array(text) == Array(indexes, most)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "`` is not a list of array indices"),
        ("a", "is not a list of array indices"),
        ("1-", "is not a list of array indices"),
        ("-1", "is not a list of array indices"),
        ("1,,2", "is not a list of array indices"),
        ("0-9:0", "is not a list of array indices"),
        ("0-9%", "is not a list of array indices"),
        ("0-9%x", "is not a list of array indices"),
        ("0-9%0", "would run no job"),
        ("9-3", "the range `9-3` is reversed"),
        ("0-1000000", "an array of 1000001 jobs is too large"),
        ("0-2000000000", "an array of 2000000001 jobs is too large"),
        ("3000000000", "is not a list of array indices"),
        ("²", "is not a list of array indices"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_array(text)
    assert message in caught.value.message
    assert caught.value.hint


def test_largest_array_is_allowed() -> None:
    assert len(parse_array(f"1-{MAX_JOBS}").indexes) == MAX_JOBS


@given(st.sets(st.integers(0, 60), min_size=1))
def test_formatted_indices_are_parsed_to_the_same_ones(indexes: set[int]) -> None:
    found = tuple(sorted(indexes))
    assert parse_array(format_indexes(found)).indexes == found


def test_variables_describe_the_array() -> None:
    variables = dict(parse_array("0-15:4%2").variables(is_slurm=True))
    for prefix in ("STOKER_ARRAY_", "SLURM_ARRAY_TASK_"):
        assert [variables[f"{prefix}{key}"] for key in ("COUNT", "MIN", "MAX", "STEP")] == [
            "4", "0", "12", "4",
        ]  # fmt: skip
    assert dict(parse_array("1,2,9").variables(is_slurm=False))["STOKER_ARRAY_STEP"] == "1"
