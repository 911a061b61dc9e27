"""Adding many reports at once gives the same curve as adding them one by one."""

from __future__ import annotations

import itertools
import json
import math

from hypothesis import given
from hypothesis import strategies as st

from stoker.features.results.curve_line import CurveLine, add_piece
from stoker.features.results.reports.report_block import Column
from stoker.features.results.reports.report_files import MetricsReader
from stoker.features.results.reports.summary import Collector

records = st.fixed_dictionaries(
    {},
    optional={
        "a": st.floats() | st.integers(-5, 5) | st.sampled_from(["text", None, True, 10**400]),
        "b": st.just(1),
        "c": st.floats(0, 1),
        "step": st.integers(0, 6) | st.sampled_from([0.5, None, math.inf, "x", True]),
        "at": st.sampled_from([1.5, 2, None, "x"]),
        "attempt": st.sampled_from([1, 1, 2, 3, None, -1, 1.5]),
    },
)


def as_text(line: CurveLine) -> str:
    return repr((line.steps, line.values, line.times, line.was_reported))


def one_by_one(chunks: list[bytes]) -> CurveLine:
    line, reader = CurveLine(), MetricsReader()
    for chunk in chunks:
        line.add("a", reader.feed(chunk), None)
    return line


def at_once(chunks: list[bytes]) -> CurveLine:
    line, reader = CurveLine(), MetricsReader()
    for chunk in chunks:
        add_piece({"a": line}, reader, chunk)
    return line


def summary_one_by_one(chunks: list[bytes]) -> Collector:
    collector = Collector()
    collector.metrics.block = lambda data: None  # type: ignore[method-assign]
    for chunk in chunks:
        collector.feed_metrics(chunk)
    return collector


def summary_at_once(chunks: list[bytes]) -> Collector:
    collector = Collector()
    for chunk in chunks:
        collector.feed_metrics(chunk)
    return collector


@given(st.lists(st.lists(records, max_size=8), max_size=5))
def test_reports_at_once_give_the_curve_of_single_reports(
    given: list[list[dict[str, object]]],
) -> None:
    chunks = ["".join(json.dumps(one) + "\n" for one in part).encode() for part in given]
    assert as_text(at_once(chunks)) == as_text(one_by_one(chunks))
    assert summary_at_once(chunks).to_json() == summary_one_by_one(chunks).to_json()


@given(st.binary(max_size=60), st.lists(st.integers(0, 200), max_size=4))
def test_invalid_lines_and_cuts_give_the_curve_of_single_reports(
    noise: bytes, cuts: list[int]
) -> None:
    data = b'{"a": 1, "step": 1}\n{"a": 2, "step": 2, "b": [1]}\n' + noise + b'\n{"a": 3}\n{"a": {'
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    chunks = [data[i:j] for i, j in itertools.pairwise(places)]
    assert as_text(at_once(chunks)) == as_text(one_by_one(chunks))
    assert summary_at_once(chunks).to_json() == summary_one_by_one(chunks).to_json()


def test_reports_of_stoker_log_are_parsed_at_once() -> None:
    lines = [{"at": n, "attempt": 1, "step": n, "a": n / 2, "b": -n} for n in range(5)]
    block = MetricsReader().block("".join(json.dumps(line) + "\n" for line in lines).encode())
    assert block is not None
    assert (block.names, block.attempt, len(block)) == (["a", "b"], 1, 5)
    assert block.column("b") == Column([0, -1, -2, -3, -4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    assert block.column("c") == Column([], [], [])
