"""Patterns in the paths of output files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.text.commands.output_patterns import (
    expand_patterns,
    from_slurm,
    literal_path,
    safe_name,
    uses_node,
)

VALUES = {"j": 12, "A": 7, "a": 5, "b": 5, "x": "train", "u": "ada", "N": "gpu1"}


def expanded(path: str) -> str:
    return expand_patterns(path, VALUES.__getitem__)


@pytest.mark.parametrize(
    ("path", "result"),
    [
        ("plain", "plain"),
        ("%j.txt", "12.txt"),
        ("%x-%A_%a", "train-7_5"),
        ("%3a/%08j", "005/00000012"),
        ("%u@%N", "ada@gpu1"),
        ("%3x", "train"),  # only numbers are padded
        ("%%j", "%j"),
        ("%%%j", "%12"),
        ("100%", "100%"),
        ("50%-%z-%5", "50%-%z-%5"),
        ("%999999999j", "0000000012"),
    ],
)
def test_patterns_are_replaced(path: str, result: str) -> None:
    assert expanded(path) == result


@given(st.text(alphabet="%jAaxuN09z/", max_size=20))
def test_literal_path_stays_as_it_is(path: str) -> None:
    assert expanded(literal_path(path)) == path


@given(st.text(alphabet="%jAaxuN09z/", max_size=20))
def test_path_can_be_expanded_in_two_steps(path: str) -> None:
    before = expand_patterns(path, VALUES.__getitem__, keeps_node=True)
    assert expanded(before) == expanded(path)


def test_path_that_was_stored_by_an_earlier_release_keeps_its_meaning() -> None:
    assert expanded("%\0j-%j") == "%j-12"


@pytest.mark.parametrize("name", ["../../etc/x", "..", ".", "/etc", "a/../b", ".hidden"])
def test_job_name_does_not_lead_into_another_folder(name: str) -> None:
    for path in ("%x", "%x/y", ".%x/y", "%x%x/y"):
        result = expand_patterns(path, lambda _: safe_name(name))
        assert ".." not in result.split("/")
        assert not result.startswith("/")
        assert result.count("/") == path.count("/")


@pytest.mark.parametrize(
    ("path", "is_array", "result"),
    [
        ("%x-%A_%a", True, "%x-%A_%a"),
        ("%%j", False, "%%j"),
        ("%4J", False, "%4j"),
        ("%a", False, "4294967294"),
        ("%b", False, "4"),
        ("%n%t%s", True, "00batch"),
        ("100%", False, "100%"),
        ("%z", False, "%z"),
    ],
)
def test_patterns_of_slurm_are_translated(path: str, is_array: bool, result: str) -> None:
    assert from_slurm(path, is_array=is_array) == result


def test_node_pattern_is_found() -> None:
    assert uses_node("a-%N")
    assert not uses_node("a-%%N")
