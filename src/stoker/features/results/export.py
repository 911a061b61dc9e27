"""Export rows for other programs: spreadsheets, data frames, notebooks.

Columns are named as in table.py, with one value per cell.
"""

from __future__ import annotations

import html as markup
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from stoker.errors import Unavailable, UsageError
from stoker.features.results import table
from stoker.features.results.optional_imports import load
from stoker.features.results.table import Row, Table
from stoker.text.progress.report_line import is_number

Rows = Sequence[Row] | Table  # a Table already has its columns selected
_MAX_INT = 2**63 - 1
_RUNS_IN_SPREADSHEETS = ("=", "+", "-", "@", "\t", "\r")


def export(rows: Rows, form: str, columns: Sequence[str] | None = None) -> bytes:
    """Return the content of a csv, json, jsonl, parquet or html file."""
    if form == "parquet":
        return parquet(rows, columns)
    makers: dict[str, Callable[[Rows, Sequence[str] | None], str]] = {
        "csv": csv,
        "json": json_text,
        "jsonl": jsonl,
        "html": html,
    }
    if form not in makers:
        raise UsageError(
            f"`{form}` is not an export format", f"use one of {', '.join(makers)}, parquet"
        )
    # Parameters may contain bytes that are not UTF-8; backslashreplace gives valid JSON escapes.
    return makers[form](rows, columns).encode("utf-8", "backslashreplace")


def _content(rows: Rows, columns: Sequence[str] | None, *, constants: bool = True) -> Table:
    if isinstance(rows, Table):
        return rows
    if columns is None:
        columns = table.columns(rows, constants=constants)
    return table.select_columns(rows, columns, table.Columns(rows))


# -- text -----------------------------------------------------------------------------------------


def text_table(rows: Rows) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return (header, lines) for display: numbers with 6 digits, `-` for missing values."""
    names, lines = _content(rows, None, constants=False)
    return names, [tuple(short(cell) for cell in line) for line in lines]


def short(value: object) -> str:
    """Format a value for display.

    >>> short(0.1 + 0.2), short(True), short(None), short([1, 2])
    ('0.3', 'true', '-', '[1, 2]')
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        return value
    return _json(value)


def csv(rows: Rows, columns: Sequence[str] | None = None) -> str:
    """CSV as in RFC 4180. A text that a spreadsheet would run as a formula is prefixed with '."""
    import csv as writer
    import io

    names, lines = _content(rows, columns)
    text = io.StringIO()
    out = writer.writer(text, lineterminator="\r\n")
    out.writerow([_harmless(name) for name in names])
    for line in lines:
        out.writerow([_csv_cell(cell) for cell in line])
    return text.getvalue()


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    if is_number(value):
        return repr(value)
    return _harmless(value if isinstance(value, str) else _json(value))


def _harmless(text: str) -> str:
    if not text.startswith(_RUNS_IN_SPREADSHEETS):
        return text
    try:
        float(text)
    except ValueError:
        return "'" + text
    return text


def json_text(rows: Rows, columns: Sequence[str] | None = None) -> str:
    """A JSON list of objects; see `records` for NaN."""
    lines = [_json(record) for record in records(rows, columns)]
    return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"


def jsonl(rows: Rows, columns: Sequence[str] | None = None) -> str:
    return "".join(f"{_json(record)}\n" for record in records(rows, columns))


def records(rows: Rows, columns: Sequence[str] | None = None) -> list[dict[str, object]]:
    """Return rows as values that strict JSON allows.

    JSON has neither NaN nor infinity. They become null, and `$nonfinite` of the row maps the column
    to the original value, so that a diverged loss differs from one that was never reported.
    """
    names, lines = _content(rows, columns)
    result = []
    for line in lines:
        record: dict[str, object] = {}
        nonfinite = {}
        for name, value in zip(names, line, strict=True):
            record[name] = _finite(value)
            if isinstance(value, float) and not math.isfinite(value):
                nonfinite[name] = str(value)
        if nonfinite:
            record["$nonfinite"] = nonfinite
        result.append(record)
    return result


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    if isinstance(value, dict):
        return {str(key): _finite(part) for key, part in value.items()}
    return value


def _json(value: object) -> str:
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, default=str)


def html(rows: Rows, columns: Sequence[str] | None = None) -> str:
    """An HTML table for notebooks; all content is escaped."""
    names, lines = _content(rows, columns)
    head = "".join(f"<th>{markup.escape(name)}</th>" for name in names)
    made = ["<table>", f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    made += ["<tr>" + "".join(map(_html_cell, line)) + "</tr>" for line in lines]
    return "\n".join([*made, "</tbody>", "</table>", ""])


def _html_cell(value: object) -> str:
    style = ' style="text-align:right"' if is_number(value) else ""
    return f"<td{style}>{markup.escape(short(value))}</td>"


# -- data frames ----------------------------------------------------------------------------------


def series(rows: Rows, columns: Sequence[str] | None = None) -> dict[str, list[Any]]:
    """Return each column as values of one type; mixed types become text, lists become JSON."""
    names, lines = _content(rows, columns)
    return {name: _of_one_type([line[i] for line in lines]) for i, name in enumerate(names)}


def _of_one_type(values: list[object]) -> list[Any]:
    present = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in present):
        return values
    if all(is_number(value) for value in present):
        whole = all(isinstance(value, int) and abs(value) <= _MAX_INT for value in present)
        return values if whole else [_float(value) for value in values]
    return [None if value is None else _text(value) for value in values]


def _float(value: object) -> float | None:
    try:
        return float(value) if is_number(value) else None
    except OverflowError:
        return math.inf


def _text(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        text = str(value)  # `nan` or `inf`, which JSON cannot represent
    else:
        text = value if isinstance(value, str) else _json(value)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # Arrow requires valid UTF-8


def to_pandas(rows: Rows, columns: Sequence[str] | None = None) -> Any:
    return load("pandas", "pandas").DataFrame(series(rows, columns))


def to_polars(rows: Rows, columns: Sequence[str] | None = None) -> Any:
    return load("polars", "polars").DataFrame(series(rows, columns))


def parquet(rows: Rows, columns: Sequence[str] | None = None) -> bytes:
    """Return a Parquet file, written by pyarrow or, if that is missing, by polars."""
    import io

    content = series(rows, columns)
    file = io.BytesIO()
    try:
        arrow = load("pyarrow", "parquet")
        load("pyarrow.parquet", "parquet").write_table(arrow.table(content), file)
    except Unavailable as error:
        try:
            polars = load("polars", "parquet")
        except Unavailable:
            raise error from None
        polars.DataFrame(content).write_parquet(file)
    return file.getvalue()
