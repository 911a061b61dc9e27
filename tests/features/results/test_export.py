"""Exported rows, and that other programs read the same values."""

from __future__ import annotations

import csv
import doctest
import io
import json
import math
import sys
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import Unavailable, UsageError
from stoker.features.results import export, importance, optional_imports
from stoker.features.results.table import Row, Table

ROWS = [
    Row(
        1, 101, {"lr": 0.1, "opt": "adam", "layers": [1, 2]}, {"loss": 0.25, "ok": True}, "done", 9
    ),
    Row(2, 102, {"lr": 1, "opt": None, "layers": "x"}, {"loss": math.nan}, "failed"),
    Row(3, None, {"lr": 2, "opt": "<b>", "layers": None}, {"loss": -math.inf}),
]
NAMES = ["trial", "lr", "opt", "layers", "loss", "ok", "state", "seconds", "job"]


def hide(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Make these packages look as if they were not installed."""
    for name in list(sys.modules):
        if name.partition(".")[0] in packages:
            monkeypatch.setitem(sys.modules, name, None)
    for name in packages:
        monkeypatch.setitem(sys.modules, name, None)


def test_text_table_has_short_numbers() -> None:
    header, lines = export.text_table([Row(1, 7, {}, {"loss": 1 / 3, "n": 12345678})])
    assert header == ("trial", "loss", "n", "state", "seconds", "job")
    assert lines == [("1", "0.333333", "12345678", "", "-", "7")]


def test_docstring_examples_are_correct() -> None:
    for module in (export, importance):
        done = doctest.testmod(module)
        assert (done.failed, done.attempted > 0) == (0, True)


def test_csv_has_all_columns_and_full_precision() -> None:
    text = export.csv([Row(1, 7, {"note": 'a "b", c'}, {"loss": 0.1 + 0.2})])
    assert text == (
        "trial,note,loss,state,seconds,job\r\n"
        '1,"a ""b"", c",0.30000000000000004,,,7\r\n'
    )  # fmt: skip


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-a", "@sum", "\tx", "=HYPERLINK(1)"])
def test_csv_formula_is_prefixed_with_a_quote(text: str) -> None:
    out = export.csv([Row(1, 1, {text: text}, {})], [text])
    assert list(csv.reader(io.StringIO(out, newline=""))) == [["'" + text], ["'" + text]]


@pytest.mark.parametrize("value", [-1, -0.5, "-3e5", "+7", -math.inf])
def test_csv_number_stays_a_number(value: object) -> None:
    out = export.csv([Row(1, 1, {"x": value}, {})], ["x"])
    assert out == f"x\r\n{value}\r\n"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_csv_survives_a_round_trip(texts: list[str]) -> None:
    rows = [Row(i, i, {"x": text}, {}) for i, text in enumerate(texts)]
    lines = list(
        csv.reader(io.StringIO(export.csv(rows, ["trial", "x"] if rows else ["trial"]), newline=""))
    )
    assert [line[1].removeprefix("'") for line in lines[1:]] == [t.removeprefix("'") for t in texts]


def test_json_is_strict_and_lists_non_finite_values() -> None:
    def refuse(word: str) -> None:
        pytest.fail(f"{word} is not JSON")

    lines = json.loads(export.json_text(ROWS), parse_constant=refuse)
    assert lines[0]["layers"] == [1, 2]
    assert "$nonfinite" not in lines[0]
    assert (lines[1]["loss"], lines[1]["$nonfinite"]) == (None, {"loss": "nan"})
    assert lines[2]["$nonfinite"] == {"loss": "-inf"}
    assert [json.loads(line) for line in export.jsonl(ROWS).splitlines()] == lines
    assert export.json_text([]) == "[]\n"


def test_invalid_utf_8_can_be_exported_in_every_format() -> None:
    rows = [Row(1, 1, {"x": "a\udcffb"}, {})]
    assert json.loads(export.export(rows, "json"))[0]["x"] == "a\udcffb"
    for form in ("csv", "jsonl", "html", "parquet"):
        assert export.export(rows, form)


def test_html_is_escaped() -> None:
    text = export.html([Row(1, 1, {"<i>": "<script>"}, {})])
    assert "<script>" not in text
    assert "<i>" not in text
    assert "&lt;script&gt;" in text


def test_unknown_format_or_column_is_refused() -> None:
    with pytest.raises(UsageError, match="`xls` is not an export format"):
        export.export(ROWS, "xls")
    with pytest.raises(UsageError, match="unknown column `los`"):
        export.export(ROWS, "csv", ["los"])


def test_pandas_gets_columns_of_one_type() -> None:
    frame = export.to_pandas(ROWS)
    assert list(frame.columns) == NAMES
    assert frame["lr"].tolist() == [0.1, 1.0, 2.0]
    assert frame["layers"].tolist()[:2] == ["[1, 2]", "x"]
    assert math.isnan(frame["loss"][1])


def test_polars_gets_columns_of_one_type() -> None:
    frame = export.to_polars(ROWS)
    assert frame.columns == NAMES
    assert frame["opt"].to_list() == ["adam", None, "<b>"]
    assert frame["ok"].to_list() == [True, None, None]


@pytest.mark.parametrize("missing", ["nothing", "pyarrow"])
def test_parquet_is_written_by_pyarrow_or_polars(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader: Any = import_module("pyarrow.parquet")
    with monkeypatch.context() as hidden:
        hide(hidden, missing)
        content = export.export(ROWS, "parquet")
    read = reader.read_table(io.BytesIO(content)).to_pydict()
    assert list(read) == NAMES
    assert (read["lr"], read["job"]) == ([0.1, 1.0, 2.0], [101, 102, None])


def test_huge_integers_become_floats_in_data_frames() -> None:
    rows = [Row(1, 1, {"x": 10**30}, {}), Row(2, 2, {"x": 10**400}, {})]
    assert export.to_polars(rows)["x"].to_list() == [1e30, math.inf]


@pytest.mark.parametrize(
    ("call", "packages", "extra"),
    [
        (export.to_pandas, ["pandas"], "pandas"),
        (export.to_polars, ["polars"], "polars"),
        (export.parquet, ["pyarrow", "polars"], "parquet"),
    ],
)
def test_error_about_a_missing_package_has_the_pip_command(
    call: Any, packages: list[str], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, *packages)
    with pytest.raises(Unavailable) as caught:
        call(ROWS)
    assert packages[0] in caught.value.message
    assert caught.value.hint == f"pip install 'stoker[{extra}]'"


def test_unknown_package_is_reported_as_not_installed() -> None:
    with pytest.raises(Unavailable, match="no_such_package is not installed"):
        optional_imports.load("no_such_package.part", "plot")


def test_infinity_in_a_text_column_is_written_as_text() -> None:
    rows = [Row(1, None, {}, {"a": math.inf}), Row(2, None, {}, {"a": "high"})]
    assert export.series(rows, ["a"]) == {"a": ["inf", "high"]}


def test_empty_table_has_its_header_in_every_format() -> None:
    empty = Table(("trial", "loss"), [])
    assert export.csv(empty) == "trial,loss\r\n"
    assert export.json_text(empty) == "[]\n"
    assert export.jsonl(empty) == ""
    assert "<th>loss</th>" in export.html(empty)
    assert export.text_table(empty) == (("trial", "loss"), [])
    pytest.importorskip("pyarrow")
    parquet = import_module("pyarrow.parquet")
    assert parquet.read_table(io.BytesIO(export.parquet(empty))).column_names == ["trial", "loss"]
