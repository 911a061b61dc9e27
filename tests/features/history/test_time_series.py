"""Readings: packing, unpacking, and downsampling for storage and charts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.features.history.time_series import Reading, chart, coarsen, decode, encode, gather

_VALUES = st.one_of(st.none(), st.integers(-5, 200), st.integers(-(1 << 61), 1 << 61))


def _tracks(values: st.SearchStrategy[int | None] = _VALUES) -> st.SearchStrategy[list[Reading]]:
    """Readings of equal width, with times that may jump in both directions."""
    moments = st.one_of(st.integers(170_000_000_000, 170_000_100_000), st.integers(-9, 1 << 50))
    return st.integers(0, 5).flatmap(
        lambda width: st.lists(st.tuples(moments, st.tuples(*[values] * width)), max_size=60)
    )


# -- packing --------------------------------------------------------------------------------------


@given(_tracks())
def test_packed_readings_are_unpacked_unchanged(readings: list[Reading]) -> None:
    assert decode(encode(readings)) == readings


@given(_tracks(), st.data())
def test_division_into_blocks_does_not_change_the_readings(
    readings: list[Reading], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(readings)), max_size=5)))
    ends = [0, *cuts, len(readings)]
    blocks = [encode(readings[a:b]) for a, b in pairwise(ends)]
    assert [reading for block in blocks for reading in decode(block)] == readings


@given(_tracks(), st.data())
def test_truncated_block_is_refused(readings: list[Reading], data: st.DataObject) -> None:
    block = encode(readings)
    with pytest.raises(ValueError):
        decode(block[: data.draw(st.integers(0, len(block) - 1))])


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_harmless(data: bytes) -> None:
    try:
        readings = decode(data)
    except ValueError:
        return
    assert len(readings) <= len(data)


def test_steady_readings_cost_one_byte_per_number() -> None:
    readings: list[Reading] = [
        (170_000_000_000 + 1000 * beat, (97, 61440, 640 + beat % 9, 61)) for beat in range(256)
    ]
    assert len(encode(readings)) < 256 * 5 + 20


def test_several_samples_become_one_reading() -> None:
    samples = [(10, 5 << 20, 100.0, None), (40, 7 << 20, 200.0, None)]
    assert gather("gpu", samples) == (25, 7, 150, None)
    assert gather("job_processes", [(99.96, 3 << 16)]) == (1000, 3)


# -- coarser --------------------------------------------------------------------------------------


@given(_tracks(), st.integers(1, 50_000))
def test_coarse_readings_keep_the_extremes_of_every_interval(
    readings: list[Reading], width: int
) -> None:
    coarse = coarsen(readings, width)
    assert _extremes(coarse, width) == _extremes(readings, width)
    for stretch in {at // width for at, _ in readings}:
        assert 1 <= sum(at // width == stretch for at, _ in coarse) <= 2
    assert {at for at, _ in coarse} <= {at for at, _ in readings}
    assert coarsen(coarse, width) == coarse


def _extremes(readings: list[Reading], width: int) -> dict[tuple[int, int], tuple[int, int]]:
    found: dict[tuple[int, int], list[int]] = {}
    for at, values in readings:
        for column, value in enumerate(values):
            if value is not None:
                found.setdefault((at // width, column), []).append(value)
    return {place: (min(values), max(values)) for place, values in found.items()}


# -- charts ---------------------------------------------------------------------------------------

_POINTS = st.lists(
    st.tuples(st.floats(0, 1e6), st.floats(-1e9, 1e9)), min_size=1, max_size=200
).map(sorted)


@given(_POINTS, st.integers(1, 250))
def test_chart_keeps_original_points_and_extremes(
    points: list[tuple[float, float]], most: int
) -> None:
    shown = chart(points, [], most)
    assert len(shown) <= max(3, most)
    assert set(shown) <= set(points)
    assert [at for at, _ in shown] == sorted(at for at, _ in shown)
    values = [value for _, value in points]
    assert {min(values), max(values)} <= {value for _, value in shown}


@given(_POINTS, st.integers(1, 250), st.floats(0, 1e5))
def test_gap_wider_than_an_interval_is_shown(
    points: list[tuple[float, float]], most: int, quiet: float
) -> None:
    times = [at for at, _ in points]
    gaps = [(a, b) for a, b in pairwise(times) if b - a > quiet]
    shown = chart(points, gaps, most)
    assert len(shown) <= max(3, most)
    marks = [at for at, value in shown if value is None]
    assert all(any(a <= mark <= b for a, b in gaps) for mark in marks)
    if len(points) + len(gaps) <= most:
        assert len(marks) == len(gaps)


def test_single_spike_in_a_long_period_is_shown() -> None:
    points = [(float(second), 0.0) for second in range(86_400)]
    points[43_210] = (43_210.0, 100.0)
    shown = chart(points, [], 600)
    assert len(shown) <= 600
    assert (43_210.0, 100.0) in shown
