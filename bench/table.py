"""Markdown tables and the numbers in them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

BEGIN, END = "<!-- results -->", "<!-- /results -->"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; all columns except the first are right-aligned."""
    align = ["---"] + ["---:"] * (len(headings) - 1)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (headings, align, *rows))


def number(value: float, digits: int = 0) -> str:
    return "-" if math.isnan(value) else f"{value:,.{digits}f}"


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median and, if the values differ, the range: `0.81 (0.78-0.90)`."""
    known = [value for value in values if not math.isnan(value)]
    shown = number(median(known), digits)
    if not known or min(known) == max(known):
        return shown
    return f"{shown} ({number(min(known), digits)}-{number(max(known), digits)})"


def median(values: Sequence[float]) -> float:
    """Median of the values that are not nan; nan without any."""
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else math.nan


def replace_between_markers(document: Path, text: str) -> None:
    """Replace the text between the markers of a Markdown file."""
    whole = document.read_text()
    if BEGIN not in whole or END not in whole:
        raise SystemExit(f"{document}: markers {BEGIN} ... {END} not found")
    head, rest = whole.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    document.write_text(f"{head}{BEGIN}\n\n{text.strip()}\n\n{END}{tail}")
