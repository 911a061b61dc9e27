"""A curve does not depend on how the file of reports is cut into chunks."""

from __future__ import annotations

import itertools
import json
import math

from hypothesis import given
from hypothesis import strategies as st

from stoker.core.metrics.report_files import MetricsReader
from stoker.results.curve_line import CurveLine

records = st.fixed_dictionaries(
    {},
    optional={
        "a": st.floats() | st.integers(-5, 5) | st.sampled_from(["text", None, True, 10**400]),
        "b": st.just(1),
        "step": st.integers(0, 6) | st.sampled_from([0.5, None, math.inf, "x", True]),
        "at": st.sampled_from([1.5, 2, None, "x"]),
        "attempt": st.sampled_from([1, 1, 2, 3, None, -1, 1.5]),
    },
)


def curve(chunks: list[bytes]) -> str:
    line, reader = CurveLine(), MetricsReader()
    for chunk in chunks:
        line.add("a", reader.feed(chunk), None)
    return repr((line.steps, line.values, line.times, line.was_reported))


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place for place in cuts if place < len(data))})
    return [data[i:j] for i, j in itertools.pairwise(places)]


@given(st.lists(records, max_size=12), st.lists(st.integers(0, 400), max_size=4))
def test_curve_does_not_depend_on_chunks(given: list[dict[str, object]], cuts: list[int]) -> None:
    data = "".join(json.dumps(one) + "\n" for one in given).encode()
    assert curve(cut(data, cuts)) == curve([data])


@given(st.binary(max_size=60), st.lists(st.integers(0, 200), max_size=4))
def test_curve_with_invalid_lines_does_not_depend_on_chunks(noise: bytes, cuts: list[int]) -> None:
    data = b'{"a": 1, "step": 1}\n{"a": 2, "step": 2, "b": [1]}\n' + noise + b'\n{"a": 3}\n{"a": {'
    assert curve(cut(data, cuts)) == curve([data])
