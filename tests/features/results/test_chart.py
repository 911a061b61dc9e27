"""Smoothing, groups and ranks of curves."""

from __future__ import annotations

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.features.results.chart import (
    Curve,
    average,
    group_curves,
    over_time,
    ranks,
    reduced,
    smooth,
    thin,
)
from stoker.features.results.table import Row, group

finite = st.floats(-1e6, 1e6)


def curve(*ys: float, xs: tuple[float, ...] | None = None) -> Curve:
    return Curve(array("d", range(len(ys)) if xs is None else xs), array("d", ys))


def row(trial: int, value: object, **params: object) -> Row:
    return Row(trial=trial, job=trial, params=params, metrics={"loss": value})


# -- smoothing ------------------------------------------------------------------------------------


@given(st.lists(finite, max_size=50), st.floats(0, 0.999))
def test_smoothing_is_the_weighted_mean_of_the_values_so_far(
    values: list[float], weight: float
) -> None:
    found = smooth(values, weight)
    for place in range(len(values)):
        weights = [weight ** (place - before) for before in range(place + 1)]
        pairs = zip(weights, values, strict=False)
        expected = math.fsum(w * y for w, y in pairs) / math.fsum(weights)
        assert found[place] == pytest.approx(expected, rel=1e-6, abs=1e-4)


def test_bucket_without_numbers_keeps_a_gap() -> None:
    ys = [0.0, *[math.nan] * 4, 1.0, 2.0, math.nan, -1.0, 0.0]
    kept = reduced(Curve(array("d", range(10)), array("d", ys)), 6)
    assert list(kept.xs) == [0, 1, 6, 8, 9]
    assert math.isnan(kept.ys[1])


def test_smoothing_of_a_constant_is_the_constant_from_the_start() -> None:
    assert list(smooth([3.0] * 5, 0.9)) == pytest.approx([3.0] * 5)


def test_nan_stays_a_gap_and_does_not_change_the_average() -> None:
    with_gap = smooth([1.0, math.nan, 2.0, math.inf, 3.0], 0.6)
    assert math.isnan(with_gap[1])
    assert with_gap[3] == math.inf
    assert [with_gap[0], with_gap[2], with_gap[4]] == list(smooth([1.0, 2.0, 3.0], 0.6))


# -- groups ---------------------------------------------------------------------------------------


def test_band_has_mean_lowest_and_highest_value_at_each_step() -> None:
    mean, low, high = average([curve(1, 2, 6), curve(3, 4, 0)])
    assert mean.points() == [(0, 2), (1, 3), (2, 3)]
    assert low.points() == [(0, 1), (1, 2), (2, 0)]
    assert high.points() == [(0, 3), (1, 4), (2, 6)]


def test_curve_counts_only_from_its_first_to_its_last_step() -> None:
    mean, _, _ = average([curve(1, 1, 1), curve(5, xs=(1,))])
    assert mean.points() == [(0, 1), (1, 3), (2, 1)]


def test_curves_with_different_steps_are_interpolated() -> None:
    mean, low, _ = average([curve(0, 10, xs=(0, 10)), curve(4, 4, 4, xs=(0, 5, 10))])
    assert mean.points() == [(0, 2), (5, 4.5), (10, 7)]
    assert low.points() == [(0, 0), (5, 4), (10, 4)]


def test_nan_does_not_count_in_a_group() -> None:
    mean, _, high = average([curve(1, math.nan), curve(3, math.nan), curve(math.nan, math.nan)])
    assert (mean.ys[0], high.ys[0]) == (2, 3)
    assert math.isnan(mean.ys[1])


def test_last_mean_and_band_are_the_numbers_of_results_group() -> None:
    rows = [row(1, 0.3, lr=0.1, seed=1), row(2, 0.1, lr=0.1, seed=2), row(3, 0.7, lr=1, seed=1)]
    curves = [curve(1, 0.3), curve(1, 0.1), curve(2, 0.7)]
    bands, total = group_curves(rows, ["lr"], "loss", curves)
    assert total == 2
    groups = group(rows, ["lr"], "metric.loss")
    assert [band.final for band in bands] == groups
    for band, one in zip(bands, groups, strict=True):
        last = (band.mean.ys[-1], band.low.ys[-1], band.high.ys[-1])
        assert last == (one.mean, one.min, one.max)
    assert [band.label for band in bands] == ["lr=0.1", "lr=1"]
    assert [band.runs for band in bands] == [2, 1]


def test_groups_are_sorted_by_goal_and_groups_without_a_curve_are_left_out() -> None:
    rows = [row(1, 0.3, lr=1), row(2, 0.9, lr=2), row(3, None, lr=3)]
    bands, _ = group_curves(rows, ["lr"], "loss", [curve(0.3), curve(0.9), None], goal="max")
    assert [band.value for band in bands] == [2, 1]


def test_only_the_best_groups_are_returned() -> None:
    rows = [row(n, 1000 - n, id=n) for n in range(200)]
    bands, total = group_curves(rows, ["id"], "loss", [curve(1000 - n) for n in range(200)])
    assert (len(bands), total) == (50, 200)
    assert [band.value for band in bands] == list(range(199, 149, -1))


def test_unknown_column_of_a_group_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="unknown column `sede`") as error:
        group_curves([row(1, 1, seed=1)], ["sede"], "loss", [curve(1)])
    assert "did you mean `seed`?" in (error.value.hint or "")


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 30), finite), min_size=1), min_size=1, max_size=5)
)
def test_mean_is_between_lowest_and_highest_value(given: list[list[tuple[int, float]]]) -> None:
    curves = []
    for points in given:
        kept = dict(sorted(points))
        curves.append(Curve(array("d", kept), array("d", kept.values())))
    mean, low, high = average(curves)
    assert list(mean.xs) == sorted({x for one in curves for x in one.xs})
    for least, middle, most in zip(low.ys, mean.ys, high.ys, strict=True):
        if math.isnan(middle):  # between two curves
            continue
        assert least - 1e-6 <= middle <= most + 1e-6


# -- ranks, time, points --------------------------------------------------------------------------


def test_ranks_go_from_the_best_to_the_worst_run() -> None:
    assert ranks([0.2, 0.4, 0.3], "min") == [0.0, 1.0, 0.5]
    assert ranks([0.2, 0.4, 0.4, math.nan], "max") == [1.0, 0.0, 0.0, None]
    assert ranks([5.0], "min") == [0.0]


def test_time_is_seconds_since_the_start_and_values_without_time_are_left_out() -> None:
    times, values = array("d", [103, math.nan, 101]), array("d", [1, 2, 3])
    assert over_time(times, values, 100).points() == [(1, 3), (3, 1)]
    assert over_time(times, values, None).points() == [(0, 3), (2, 1)]
    assert over_time(array("d", [5, 6]), array("d", [1, 2]), 5.5).points() == [(0, 1), (1, 2)]
    assert over_time(array("d", [math.nan]), array("d", [1]), 100).points() == []


@given(st.integers(1, 300), st.integers(4, 50))
def test_thinned_band_keeps_its_ends(count: int, points: int) -> None:
    found = thin(count, points)(curve(*range(count)))
    assert len(found.xs) <= max(points, 1)
    assert (found.xs[0], found.xs[-1]) == (0, count - 1)
