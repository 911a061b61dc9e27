"""Curves of one metric, and reducing that keeps their shape."""

from __future__ import annotations

import json
import math
import os
from array import array
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.features.results.chart import Curve, reduced
from stoker.features.results.curve_line import Point
from stoker.features.results.curve_reader import CurveReader, curve_of
from stoker.features.results.reports.reports import JobFiles, Source


class Job:
    """A job whose files a test writes."""

    def __init__(self, folder: Path) -> None:
        self.files = JobFiles(str(folder))
        os.makedirs(os.path.dirname(self.files.metrics(7)))

    def curve(
        self, name: str, metrics: bytes = b"", logs: Iterable[tuple[int, bytes]] = ()
    ) -> list[Point]:
        Path(self.files.metrics(7)).write_bytes(metrics)
        attempt = 1
        for attempt, text in logs:
            Path(self.files.log(7, attempt)).write_bytes(text)
        source = Source(job=7, attempts=attempt, stdout=None, is_finished=False)
        return curve_of(self.files, source, name)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def lines(*reports: dict[str, object]) -> bytes:
    return "".join(json.dumps(report) + "\n" for report in reports).encode()


def test_reports_without_step_are_numbered(job: Job) -> None:
    data = lines({"a": 5}, {"b": 1}, {"a": 4}, {"a": "text"}, {"a": 3})
    assert job.curve("a", data) == [(0, 5), (1, 4), (3, 3)]
    reader = CurveReader(["a"])
    for end in (7, len(data)):
        Path(job.files.metrics(7)).write_bytes(data[:end])
        assert reader.read(job.files, Source(job=7, attempts=1, stdout=None, is_finished=False))
    assert reader.line("a").points() == [(0, 5), (1, 4), (3, 3)]


def test_later_attempt_replaces_values_from_its_first_step(job: Job) -> None:
    data = lines(
        {"a": 1, "step": 0, "attempt": 1},
        {"a": 2, "step": 10, "attempt": 1},
        {"a": 3, "step": 20, "attempt": 1},
        {"a": 9, "step": 10, "attempt": 2},
    )
    assert job.curve("a", data) == [(0, 1), (10, 9)]


def test_log_is_used_for_names_missing_in_the_metrics_file(job: Job) -> None:
    logs = [(1, b"stoker: a=1\nstoker: b=2 step=5\n"), (2, b"stoker: b=3 step=7")]
    assert job.curve("a", lines({"a": 4}), logs) == [(0, 4)]
    assert job.curve("b", lines({"a": 4}), logs) == [(5, 2), (7, 3)]
    assert job.curve("c", b"", logs) == []


def test_curve_is_sorted_and_the_later_value_of_a_step_counts(job: Job) -> None:
    data = lines({"a": 1, "step": 5}, {"a": 2, "step": 1}, {"a": 3, "step": 5})
    assert job.curve("a", data) == [(1, 2), (5, 3)]


@given(st.lists(st.floats(allow_nan=True), max_size=300), st.integers(0, 60))
def test_reducing_keeps_ends_and_spikes(values: list[float], count: int) -> None:
    points = [(float(i), value) for i, value in enumerate(values)]
    xs, ys = reduced(Curve(array("d", range(len(values))), array("d", values)), count)
    fewer = list(zip(xs, ys, strict=True))
    assert len(fewer) <= max(4, count)
    assert set(map(repr, fewer)) <= set(map(repr, points))
    assert [x for x, _ in fewer] == sorted({x for x, _ in fewer})
    if points:
        assert repr((fewer[0], fewer[-1])) == repr((points[0], points[-1]))
    real = [y for _, y in points if not math.isnan(y)]
    if real:
        kept = [y for _, y in fewer if not math.isnan(y)]
        assert (min(kept), max(kept)) == (min(real), max(real))
