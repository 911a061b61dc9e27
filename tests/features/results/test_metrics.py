"""Report lines of jobs: valid and invalid, complete and in chunks."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.features.results.reports.report_files import InvalidLine, MetricsReader
from stoker.features.results.reports.summary import MAX_NAMES, Collector, Stat
from stoker.text.progress import report_line
from stoker.text.progress.report_line import (
    InvalidReport,
    Report,
    read_json_line,
    read_printed_line,
)


def collected(*lines: str) -> Collector:
    collector = Collector()
    collector.feed_metrics("".join(f"{line}\n" for line in lines).encode())
    return collector


def line(step: float, attempt: int, **values: float) -> str:
    return json.dumps({**values, "step": step, "attempt": attempt})


def fed_twice(*lines: str) -> Collector:
    """Read everything again, as a caller does when the collector is stale."""
    first = collected(*lines)
    if not first.is_stale:
        return first
    again = first.again()
    again.feed_metrics("".join(f"{line}\n" for line in lines).encode())
    return again


# -- one line -------------------------------------------------------------------------------------


def test_json_line_is_read_with_its_step_time_and_attempt() -> None:
    report = read_json_line(b'{"val/loss": 0.2, "ok": true, "step": 10, "at": 5.5, "attempt": 2}')
    assert report == Report(10, {"val/loss": 0.2, "ok": True}, 5.5, 2)


def test_json_line_may_hold_nan_and_infinity_as_python_writes_them() -> None:
    values = read_json_line(b'{"a": NaN, "b": -Infinity}').values
    assert math.isnan(values["a"])  # type: ignore[arg-type]
    assert values["b"] == -math.inf


def test_null_in_a_json_line_is_ignored() -> None:
    assert read_json_line(b'{"a": null, "b": 1}').values == {"b": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"a": 1', "not valid JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"a": [1]}', "`a` is neither a number nor text"),
        (b'{"a b": 1}', "`a b` is not a name"),
        (b'{"": 1}', "is not a name"),
        (b'{"a": 1, "step": "x"}', "`step` is not a number"),
        (b'{"a": 1, "step": NaN}', "`step` is not a number"),
        (b'{"a": 1, "step": true}', "`step` is not a number"),
        (b'{"a": 1, "attempt": 1.5}', "`attempt` is not an integer"),
        (b'{"a": \xff}', "not UTF-8"),
        (b'{"a": ' + b"1" * 400 + b"}", "`a` is too large"),
        (b'{"a": ' + b"1" * 9000 + b"}", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"%s": 1}' % (b"n" * 201), "is not a name"),
    ],
)
def test_invalid_json_line_gives_the_reason(text: bytes, reason: str) -> None:
    with pytest.raises(InvalidReport) as caught:
        read_json_line(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.25", 0.25),
        ("1e-3", 0.001),
        ("-7", -7),
        (".5", 0.5),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        ("true", True),
        ("False", False),
        ("adam", "adam"),
        ("'two words'", "two words"),
        ('"a \\"b\\""', 'a "b"'),
        ("''", ""),
        ("0.5,", 0.5),
        ("93%", "93%"),
        ("a=b", "a=b"),
    ],
)
def test_printed_value_gets_the_expected_type(text: str, value: object) -> None:
    report = read_printed_line(f"stoker: x={text} step=1".encode())
    assert report == Report(1, {"x": value})
    assert type(report.values["x"]) is type(value)


@pytest.mark.parametrize("text", ["x=1_000", "x=", "x", "x='open", "=1", "x=1 and y=2", "x='a'b"])
def test_malformed_printed_line_is_invalid(text: str) -> None:
    with pytest.raises(InvalidReport):
        read_printed_line(f"stoker: {text} y=1".encode())


@pytest.mark.parametrize("text", ["loss=1", " stoker: loss=1", "stoker: job has begun", ""])
def test_lines_without_the_prefix_are_ignored(text: str) -> None:
    assert read_printed_line(text.encode()) is None


def test_printed_line_may_follow_a_progress_bar_on_the_same_line() -> None:
    report = read_printed_line(b" 50%|####    |\rstoker: loss=1\r\n")
    assert report == Report(None, {"loss": 1})


def test_long_text_is_truncated() -> None:
    value = read_json_line(json.dumps({"a": "x" * 5000}).encode()).values["a"]
    assert value == "x" * 999 + "…"


# -- the collector --------------------------------------------------------------------------------


def test_summary_has_last_minimum_and_maximum() -> None:
    stat = collected(*(line(s, 1, loss=v) for s, v in enumerate([3, 1, 2]))).summary["loss"]
    assert stat == Stat(2, 2, 3, 0, 1, 1, 3, 0)


def test_nan_is_counted_but_is_never_minimum_or_maximum() -> None:
    stat = collected('{"a": NaN}', '{"a": 2}', '{"a": NaN}').summary["a"]
    assert (stat.n, stat.nans, stat.min, stat.max) == (3, 2, 2, 2)
    assert stat.last != stat.last


def test_text_and_booleans_have_only_a_last_value() -> None:
    summary = collected('{"a": true, "b": "x"}').summary
    assert (summary["a"].last, summary["a"].min) == (True, None)
    assert (summary["b"].last, summary["b"].max) == ("x", None)


def test_attempt_that_starts_over_replaces_everything() -> None:
    lines = [line(s, 1, loss=0.1) for s in range(5)] + [line(0, 2, loss=0.7)]
    collector = collected(*lines)
    assert not collector.is_stale
    assert collector.summary["loss"] == Stat(0.7, 0, 1, 0, 0.7, 0, 0.7, 0)


def test_attempt_without_steps_replaces_everything() -> None:
    stat = collected('{"a": 1, "attempt": 1}', '{"a": 2, "attempt": 1}', '{"a": 9, "attempt": 2}')
    assert stat.summary["a"].min == 9


def test_attempt_resumed_from_a_checkpoint_replaces_later_steps() -> None:
    lines = [
        *(line(s, 1, loss=v) for s, v in [(0, 5), (1, 4), (2, 0.1), (3, 3)]),
        *(line(s, 2, loss=v) for s, v in [(2, 2), (3, 1)]),
    ]
    assert collected(*lines).is_stale
    collector = fed_twice(*lines)
    assert not collector.is_stale
    assert collector.summary["loss"] == Stat(1, 3, 4, 0, 1, 3, 5, 0)


def test_attempt_resumed_after_the_last_step_replaces_nothing() -> None:
    collector = collected(line(0, 1, a=1), line(1, 1, a=2), line(2, 2, a=3))
    assert not collector.is_stale
    assert collector.summary["a"].n == 3


def test_late_line_of_a_replaced_attempt_is_ignored() -> None:
    collector = collected(line(0, 1, a=1), line(0, 2, a=2), line(7, 1, a=-5))
    assert collector.summary["a"] == Stat(2, 0, 1, 0, 2, 0, 2, 0)


def test_each_metric_has_its_own_timeline() -> None:
    """Epochs and batches count different steps; one must not truncate the other."""
    collector = collected(line(900, 1, train=1), line(3, 1, val=1), line(4, 2, val=2))
    assert collector.summary["train"].n == 1
    assert collector.summary["val"].n == 2


@pytest.mark.parametrize(
    ("written", "printed", "is_printed_later", "last"),
    [
        ('{"a": 1}', "a=2", True, 2),  # the same step: the file written last wins
        ('{"a": 1}', "a=2", False, 1),
        ('{"a": 1, "step": 5}', "a=2 step=4", True, 1),
        ('{"a": 1, "step": 5}', "a=2 step=6", False, 2),
        ('{"a": 1, "step": 5, "attempt": 1}', "a=2 step=0", False, 2),  # of attempt 2
        ('{"a": 1, "step": 0, "attempt": 3}', "a=2 step=9", True, 1),
    ],
)
def test_last_report_wins_for_a_name_in_both_files(
    written: str, printed: str, is_printed_later: bool, last: int
) -> None:
    collector = collected(written)
    collector.feed_log(f"stoker: {printed} b=3\n".encode(), 2)
    collector.is_printed_later = is_printed_later
    for one in (collector, Collector.from_json(collector.to_json())):
        assert {name: stat.last for name, stat in one.summary.items()} == {"a": last, "b": 3}
        assert (one.summary["a"].min, one.summary["a"].max) == (1, 2)


def test_nan_that_is_printed_last_is_the_last_value() -> None:
    collector = collected('{"a": 1, "step": 1}')
    collector.feed_log(b"stoker: a=nan step=2\n")
    assert math.isnan(collector.summary["a"].last)  # type: ignore[arg-type]
    assert collector.summary["a"].min == 1


def test_log_of_the_next_attempt_is_read_from_its_start() -> None:
    collector = Collector()
    collector.feed_log(b"stoker: a=1 step=0\nstoker: a=0 step=1\nstoker: b=7", 1)
    collector.feed_log(b"stoker: a=5 step=0\n", 2)
    assert (collector.log_attempt, collector.log.offset) == (2, 19)
    assert collector.summary["a"].min == 5
    assert collector.summary["b"].last == 7  # an unfinished line counts at the end of the log
    with pytest.raises(ValueError):
        collector.feed_log(b"", 1)


def test_partial_line_is_not_parsed_before_its_end() -> None:
    collector = Collector()
    collector.feed_metrics(b'{"a": 1}\n{"a": 2')
    assert (collector.summary["a"].last, collector.metrics.offset) == (1, 9)
    assert collector.metrics.position == 16
    collector.feed_metrics(b"5}\n")
    assert (collector.summary["a"].last, collector.metrics.offset) == (25, 19)


def test_unterminated_last_line_counts_after_the_job_ended() -> None:
    collector = Collector()
    collector.feed_metrics(b'{"a": 1}')
    collector.feed_log(b"stoker: b=2")
    assert collector.summary == {}
    collector.finish()
    collector.finish()
    assert {name: stat.n for name, stat in collector.summary.items()} == {"a": 1, "b": 1}
    assert (collector.metrics.offset, collector.log.offset) == (8, 11)


def test_invalid_lines_are_counted_and_the_first_is_kept() -> None:
    collector = collected('{"a": 1}', "", "oops", "oops again", '{"a": 2}')
    assert collector.invalid_lines == 2
    assert collector.first_invalid == InvalidLine("metrics", 3, "not valid JSON")
    assert collector.summary["a"].n == 2


def test_invalid_line_in_a_log_has_its_line_number() -> None:
    collector = Collector()
    collector.feed_log(b"one\ntwo\r 5%\r 6%\nstoker: a=1\n")
    collector.feed_log(b"four\nstoker: a b=1\nstoker: c d=1\n")
    assert collector.first_invalid is not None
    assert (collector.first_invalid.line, collector.invalid_lines) == (5, 2)


def test_report_after_the_partial_line_of_a_killed_job_is_kept() -> None:
    collector = collected('{"a": 1, "st{"a": 2, "step": 1}')
    assert collector.summary["a"].last == 2
    assert collector.invalid_lines == 1


@pytest.mark.parametrize("size", [1, 70_000, 5_000_000])
def test_too_long_line_is_invalid_for_any_chunking(size: int) -> None:
    if size == 1:
        pieces = [
            b'{"a": "' + b"x" * report_line.MAX_LINE_LENGTH,
            b"x",
            b'"}',
            b"\n",
            b'{"b": 1}\n',
        ]
    else:
        data = b'{"a": "' + b"x" * (report_line.MAX_LINE_LENGTH + 2) + b'"}\n{"b": 1}\n'
        pieces = [data[i : i + size] for i in range(0, len(data), size)]
    collector = Collector()
    for piece in pieces:
        collector.feed_metrics(piece)
    assert list(collector.summary) == ["b"]
    assert collector.invalid_lines == 1
    assert collector.metrics.offset == sum(map(len, pieces))


def test_progress_bar_without_line_ends_is_not_kept_in_memory() -> None:
    collector = Collector()
    for _ in range(100):
        collector.feed_log(b"\r 50%|#####     |" * 100 + b"x" * 1000)
    assert len(collector.log._tail) == 0
    collector.feed_log(b"stoker: no=1\rstoker: yes=1\r")
    assert list(collector.summary) == ["yes"]


def test_number_of_metric_names_is_bounded() -> None:
    collector = collected(*(f'{{"loss_{i}": 1}}' for i in range(MAX_NAMES + 50)))
    assert len(collector.summary) == MAX_NAMES
    assert collector.reports == MAX_NAMES + 50


def test_state_is_strict_json_and_small() -> None:
    collector = collected(*(line(s, 1, loss=s / 7) for s in range(2000)), '{"loss": NaN}')
    text = collector.to_json()
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert len(text) < 1000
    stat = Collector.from_json(text).summary["loss"]
    assert stat.nans == 1
    assert stat.last != stat.last


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"version": 99}', '{"version": 1, "metrics": 3}']
)
def test_state_of_another_version_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        Collector.from_json(text)


SOME_LINES = st.lists(
    st.one_of(
        st.builds(
            lambda a, s, t: json.dumps(
                {
                    "a": a,
                    **({} if s is None else {"step": s}),
                    **({} if t is None else {"attempt": t}),
                }
            ).encode(),
            st.one_of(st.floats(), st.booleans(), st.text(max_size=5), st.integers(-9, 9)),
            st.none() | st.integers(0, 6),
            st.none() | st.integers(1, 4),
        ),
        st.sampled_from([b"stoker: a=1 step=2", b"stoker:", b"stoker: b=x c", b"stoke", b"\r 5%"]),
        st.binary(max_size=12),
    ),
    max_size=12,
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b""])


def seen(collector: Collector) -> str:
    """The whole state, in a form where NaN equals NaN."""
    return repr((collector.summary, collector.to_json()))


@given(SOME_LINES, ENDS, st.lists(st.integers(0, 200), max_size=6), st.booleans())
def test_summary_does_not_depend_on_chunking(
    lines: list[bytes], end: bytes, cuts: list[int], stored: bool
) -> None:
    """The result is the same for any chunking, also if the collector is saved in between."""
    data = end.join([*lines, b""])
    whole, pieces = Collector(), Collector()
    whole.feed_metrics(data)
    whole.feed_log(data)
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for until in bounds:
        if stored:
            pieces = Collector.from_json(pieces.to_json())
        pieces.feed_metrics(data[pieces.metrics.position : until])
        pieces.feed_log(data[pieces.log.position : until])
    assert seen(pieces) == seen(whole)
    whole.finish()
    pieces.finish()
    assert seen(pieces) == seen(whole)


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(1, 5), st.integers(-50, 50)), max_size=30
    ).map(lambda reports: sorted(reports, key=lambda report: report[1]))
)
def test_replaced_reports_do_not_affect_the_summary(reports: list[tuple[int, int, int]]) -> None:
    kept: list[tuple[int, int]] = []
    newest = 0
    for step, attempt, value in reports:
        if attempt > newest:
            newest = attempt
            kept = [(s, v) for s, v in kept if s < step]
        kept.append((step, value))
    summary = fed_twice(*(line(s, a, x=v) for s, a, v in reports)).summary
    values = [value for _, value in kept]
    if not kept:
        assert summary == {}
        return
    stat = summary["x"]
    assert (stat.last, stat.n, stat.min, stat.max) == (
        values[-1], len(values), min(values), max(values),
    )  # fmt: skip


def test_reader_state_is_restored() -> None:
    reader = MetricsReader()
    reader.feed(b"x\n")
    state = json.loads(json.dumps(reader.state()))
    assert {"invalid_lines", "first_invalid"} <= state.keys()
    restored = MetricsReader()
    restored.restore(state)
    assert restored.state() == reader.state()
    assert restored.first_invalid is not None and restored.invalid_lines == 1
