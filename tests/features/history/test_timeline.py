"""The blocks of a GPU's timeline: they cover the range, do not overlap, and keep the sums."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.features.history.gpu_time import Interval, add_up, cover, sum_of
from stoker.features.history.timeline_blocks import (
    Bar,
    MergedBlock,
    Run,
    bars,
    forecast_bars,
    job_in,
    merge_short,
    words_of,
)

KINDS = ("busy", "others", "idle", "waiting")
REASONS = {"waiting": ("drained", "reserved for job 25"), "idle": ("", "drained")}


@st.composite
def intervals(draw: st.DrawFn) -> list[Interval]:
    """Intervals as the recorder saves them, with pauses, and some after the clock was set back."""
    at = 0.0
    found = []
    for _ in range(draw(st.integers(0, 30))):
        kind = draw(st.sampled_from(KINDS))
        at += draw(st.sampled_from((-5.0, 0.0, 0.0, 0.0, 3.0, 40.0)))
        length = draw(st.sampled_from((0.0, 0.5, 1.0, 2.0, 7.0, 60.0)))
        jobs = draw(st.sets(st.integers(1, 6), min_size=1, max_size=4)) if kind == "busy" else ()
        reason = draw(st.sampled_from(REASONS.get(kind, ("",))))
        starts = draw(st.integers(0, 3)) if kind == "busy" else 0
        found.append(Interval("G", at, at + length, kind, tuple(jobs), reason, starts))
        at += length
    return found


def seconds_by_kind(blocks: list[MergedBlock]) -> dict[str, float]:
    found: dict[str, float] = {}
    for block in blocks:
        for kind, seconds in block.seconds:
            found[kind] = found.get(kind, 0.0) + seconds
    return found


@settings(max_examples=120, deadline=None)
@given(intervals(), st.floats(0, 100), st.floats(0.5, 300), st.sampled_from((0.0, 1.0, 5.0, 50.0)))
def test_blocks_cover_the_range_and_keep_the_sums(
    some: list[Interval], since: float, length: float, step: float
) -> None:
    until = since + length
    exact = cover(some, since, until)
    merged = merge_short(exact, step)
    for blocks in ([one[:2] for one in exact], [one[:2] for one in merged]):
        assert (blocks[0][0], blocks[-1][1]) == (since, until)
        assert all(one[1] == after[0] for one, after in pairwise(blocks))
        assert all(start < end for start, end in blocks)
    if step:
        assert len(merged) <= 2 * length / step + 1
    history = add_up(some, since, until)
    assert history == sum_of(exact)
    assert sum(history[:6]) == pytest.approx(length)
    found = seconds_by_kind(merged)
    assert found.get("busy", 0.0) == pytest.approx(history.busy)
    assert found.get("waiting", 0.0) == pytest.approx(history.waiting)
    assert found.get("off", 0.0) == pytest.approx(history.off)


@settings(max_examples=120, deadline=None)
@given(intervals(), st.floats(0, 100), st.floats(0.5, 300), st.sampled_from((0.0, 1.0, 5.0, 50.0)))
def test_bars_of_one_lane_never_overlap_and_together_they_cover_the_range(
    some: list[Interval], since: float, length: float, step: float
) -> None:
    until = since + length
    drawn = bars(merge_short(cover(some, since, until), step))
    lanes: dict[int, list[Bar]] = {}
    for bar in drawn:
        assert 0 <= bar.lane < bar.lanes
        assert words_of(bar)
        if bar.kind == "busy":
            lanes.setdefault(bar.lane, []).append(bar)
    for lane in lanes.values():
        lane.sort()
        assert all(one.until <= after.since for one, after in pairwise(lane))
    end = since
    for bar in sorted(drawn):
        assert bar.since <= end  # no gap
        assert bar.kind == "busy" or bar.since == end  # nothing beside a block without jobs
        end = max(end, bar.until)
    assert end == until


def test_job_keeps_one_bar_while_others_share_its_gpu() -> None:
    some = [
        Interval("G", 0, 10, "busy", (7,), "", 1),
        Interval("G", 10, 20, "busy", (7, 8), "", 1),
        Interval("G", 20, 40, "busy", (8,), "", 0),
        Interval("G", 40, 50, "busy", (9,), "", 1),
    ]
    drawn = bars(merge_short(cover(some, 0, 50), 1))
    found = [(bar.job, bar.since, bar.until, bar.lane, bar.lanes) for bar in drawn]
    assert found == [(7, 0, 20, 0, 2), (8, 10, 40, 1, 2), (9, 40, 50, 0, 1)]


def test_long_job_stays_visible_among_thousands_of_short_ones() -> None:
    some = [
        Interval("G", at, at + 1, "busy", (7, 100 + at) if at % 2 else (7,), "", at % 2)
        for at in range(4000)
    ]
    drawn = bars(merge_short(cover(some, 0, 4000), 40))
    assert [(bar.since, bar.until, bar.lane) for bar in drawn if bar.job == 7] == [(0, 4000, 0)]
    short = [bar for bar in drawn if bar.job is None]
    assert len(short) == 100
    assert words_of(short[0]) == "20 short jobs"


@pytest.mark.parametrize(
    ("kind", "reason", "words", "look"),
    [
        ("idle", "", "idle: no job waited for a GPU", "idle"),
        ("idle", "drained", "drained; no job waited for a GPU", "drained"),
        ("waiting", "drained", "no job ran although jobs waited: drained", "drained"),
        (
            "others",
            "memory held by another user (alice)",
            "memory held by another user (alice); no job waited for a GPU",
            "others",
        ),
        ("off", "", "Stoker was not running", "off"),
        ("unknown", "", "no records of this time", "unknown"),
    ],
)
def test_every_kind_of_idle_time_has_words(kind: str, reason: str, words: str, look: str) -> None:
    bar = Bar(0.0, 1.0, kind, reason=reason)
    assert (words_of(bar), bar.look) == (words, look)


def test_merged_block_of_several_kinds_says_how_busy_it_was_and_why_not() -> None:
    some = [
        Interval("G", 0, 3, "busy", (1,), "", 1),
        Interval("G", 3, 4, "waiting", (), "reserved for job 25", 0),
    ]
    (bar,) = bars(merge_short(cover(some, 0, 4), 10))
    assert words_of(bar) == (
        "1 short job, busy 75% of the time; no job ran although jobs waited: reserved for job 25"
    )
    assert job_in(bar.reason) == 25


def test_forecast_continues_the_lanes_of_running_jobs_and_shows_unknown_ends() -> None:
    runs = [Run(9, 150.0, 180.0), Run(8, 0.0, 150.0), Run(7, 50.0, None), Run(10, 500.0, 600.0)]
    drawn = forecast_bars(runs, 100.0, 200.0, {7: 0, 8: 1})
    assert [(bar.job, bar.since, bar.until, bar.lane, bar.is_open) for bar in drawn] == [
        (7, 100.0, 200.0, 0, True),
        (8, 100.0, 150.0, 1, False),
        (9, 150.0, 180.0, 1, False),
    ]
    assert words_of(drawn[0]) == "job 7, end unknown"
