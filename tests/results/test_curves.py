"""Curves of one metric, and downsampling that keeps their shape."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from stoker.results.curves import curve, downsample


def lines(*reports: dict[str, object]) -> bytes:
    return "".join(json.dumps(report) + "\n" for report in reports).encode()


def test_reports_without_step_are_numbered() -> None:
    data = lines({"a": 5}, {"b": 1}, {"a": 4}, {"a": "text"}, {"a": 3})
    assert curve("a", [data[:7], data[7:]]) == [(0, 5), (1, 4), (3, 3)]


def test_later_attempt_replaces_values_from_its_first_step() -> None:
    data = lines(
        {"a": 1, "step": 0, "attempt": 1},
        {"a": 2, "step": 10, "attempt": 1},
        {"a": 3, "step": 20, "attempt": 1},
        {"a": 9, "step": 10, "attempt": 2},
    )
    assert curve("a", [data]) == [(0, 1), (10, 9)]


def test_log_is_used_for_names_missing_in_the_metrics_file() -> None:
    logs = [(1, [b"stoker: a=1\nstoker: b=2 step=5\n"]), (2, [b"stoker: b=3 step=7"])]
    assert curve("a", [lines({"a": 4})], logs) == [(0, 4)]
    assert curve("b", [lines({"a": 4})], logs) == [(5, 2), (7, 3)]
    assert curve("c", [], logs) == []


def test_curve_is_sorted_and_the_later_value_of_a_step_counts() -> None:
    data = lines({"a": 1, "step": 5}, {"a": 2, "step": 1}, {"a": 3, "step": 5})
    assert curve("a", [data]) == [(1, 2), (5, 3)]


@given(st.lists(st.floats(allow_nan=True), max_size=300), st.integers(0, 60))
def test_downsampling_keeps_ends_and_spikes(values: list[float], count: int) -> None:
    points = [(float(i), value) for i, value in enumerate(values)]
    fewer = downsample(points, count)
    assert len(fewer) <= max(4, count)
    assert set(map(id, fewer)) <= set(map(id, points))
    assert [x for x, _ in fewer] == sorted({x for x, _ in fewer})
    if points:
        assert (fewer[0], fewer[-1]) == (points[0], points[-1])
    real = [y for _, y in points if not math.isnan(y)]
    if real:
        kept = [y for _, y in fewer if not math.isnan(y)]
        assert (min(kept), max(kept)) == (min(real), max(real))
