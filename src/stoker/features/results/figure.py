"""Plots as data, so that the terminal and image files show the same plot.

Functions here build a `Figure` from rows and curves; terminal_plot and image_plot draw it. Labels
are untrusted text, which each renderer escapes in its own way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stoker.features.results import table
from stoker.features.results.chart import BAND, Band
from stoker.features.results.export import short
from stoker.features.results.importance import explain, importance
from stoker.features.results.table import Row
from stoker.record import Record

Point = tuple[float, float]

MAX_NAMED = 8  # curves with their own color and label; the others are drawn in the background
MAX_PANELS = 6
MAX_CATEGORIES = 12
_DECADES_FOR_LOG = 2
_FEWEST_FOR_BOX = 3


class Axis(Record):
    label: str
    scale: str = "linear"  # linear, log or category
    categories: tuple[str, ...] = ()  # the names of 0, 1, 2, ... on a category axis


class Series(Record):
    label: str  # in the legend; empty for no entry
    points: tuple[Point, ...]
    style: str = "line"  # line or dots
    role: str = "plain"  # plain, best, or faint (in the background)


class Box(Record):
    """A box plot of the values at one position: quartiles, minimum and maximum."""

    at: float
    low: float
    q1: float
    median: float
    q3: float
    high: float


class Fill(Record):
    """The area between two lines around a series."""

    series: int  # its number in the panel
    low: tuple[Point, ...]
    high: tuple[Point, ...]


class Panel(Record):
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    boxes: tuple[Box, ...] = ()
    title: str = ""
    fills: tuple[Fill, ...] = ()


class Figure(Record):
    title: str
    panels: tuple[Panel, ...]
    note: str = ""


class TrialCurve(Record):
    trial: int | None
    points: Sequence[Point]
    label: str = ""  # if empty, `trial 3`
    result: object = None  # the last value of the metric, by which trials are ranked


class CurveAxes(Record):
    x: str = "step"
    log_x: bool = False
    log_y: bool | None = None  # None: the range of the values decides


# -- curves ---------------------------------------------------------------------------------------


def learning_curves(
    trials: Sequence[TrialCurve],
    metric: str,
    goal: str | None = "min",
    *,
    axes: CurveAxes = CurveAxes(),  # noqa: B008
    notes: Sequence[str] = (),
) -> Figure:
    """Return a figure with one line per trial; the best trial is drawn last, on top.

    Only the best MAX_NAMED have labels. Without a goal, no trial is the best.
    """
    drawn = [trial for trial in trials if any(math.isfinite(value) for _, value in trial.points)]
    order = table.ranked(drawn, [trial.result for trial in drawn], goal)
    has_best = bool(order) and goal is not None and table.number(order[0].result) is not None
    best = order[0] if has_best else None
    named = [
        Series(
            _name(trial) + (" (best)" if trial is best else ""),
            tuple(trial.points),
            "line",
            "best" if trial is best else "plain",
        )
        for trial in order[:MAX_NAMED]
    ]
    faint = [Series("", tuple(trial.points), "line", "faint") for trial in order[MAX_NAMED:]]
    said = []
    if best is not None:
        said.append(f"best ({goal}): {_name(best)} with {short(best.result)} at the end")
    if faint:
        said.append(f"{len(faint)} more without a label")
    if len(drawn) < len(trials):
        said.append(f"{len(trials) - len(drawn)} without a finite value")
    return _curve_figure(metric, axes, (*faint, *named), (), (*said, *notes))


def band_plot(
    bands: Sequence[Band],
    metric: str,
    goal: str | None,
    axes: CurveAxes,
    notes: Sequence[str] = (),
) -> Figure:
    """Return a figure with the mean of each group, the best last and on top, and its band."""
    series, fills = [], []
    for place, band in enumerate(bands):
        label = f"{band.label} ({band.runs})" if place < MAX_NAMED else ""
        role = "plain" if label else "faint"
        if place == 0 and goal is not None:
            role = "best"
        series.append(Series(label, tuple(band.mean.points()), "line", role))
        if label:
            low, high = tuple(band.low.points()), tuple(band.high.points())
            fills.append(Fill(place, low, high))
    said = ["mean (number of runs); the band is " + BAND] if bands else []
    if bands and goal is not None:
        mean = bands[0].final.mean
        said.insert(0, f"best ({goal}): {bands[0].label} with {short(mean)} at the end")
    if len(bands) > MAX_NAMED:
        said.append(f"{len(bands) - MAX_NAMED} more without a label")
    return _curve_figure(metric, axes, tuple(series), tuple(fills), (*said, *notes))


def _curve_figure(
    metric: str,
    axes: CurveAxes,
    series: tuple[Series, ...],
    fills: tuple[Fill, ...],
    notes: Sequence[str],
) -> Figure:
    log_y = axes.log_y
    if log_y is None:
        log_y = _is_wide([y for one in series for _, y in one.points])
    x = Axis(axes.x, "log" if axes.log_x else "linear")
    y = Axis(metric, "log" if log_y else "linear")
    over = "steps" if axes.x == "step" else "time"
    panel = Panel(x, y, series, fills=fills)
    return Figure(f"{metric} over {over}", (panel,), "; ".join(notes))


def _name(trial: TrialCurve) -> str:
    return trial.label or f"trial {short(trial.trial)}"


# -- parameters -----------------------------------------------------------------------------------


def parameter_plot(
    rows: Sequence[Row], parameter: str, metric: str, goal: str | None = "min"
) -> Figure:
    """Return a plot of the metric against one parameter: dots for numbers, box plots otherwise."""
    known = table.Columns(rows)
    parameter, metric = known.find(parameter), known.find(metric)
    panel, note = _parameter_panel(rows, parameter, metric, goal)
    return Figure(f"{metric} by {parameter}", (panel,), note)


def overview(rows: Sequence[Row], metric: str, goal: str | None = "min") -> Figure:
    """Return a figure with a panel for each parameter that varies, the most important first."""
    known = table.Columns(rows)
    metric = known.find(metric)
    influences = importance(rows, metric)
    scores = {one.name: one.score for one in influences}
    names = sorted(table.varying(rows), key=lambda name: -scores.get(name, -1))
    panels = []
    for name in names[:MAX_PANELS]:
        panel, _ = _parameter_panel(rows, name, metric, goal)
        title = f"{name} ({scores[name]:.0%})" if name in scores else name
        panels.append(panel._replace(title=title))
    notes = []
    best = table.best(rows, metric, goal)
    if best is not None:
        value = known.reader(metric)(best)
        notes.append(f"best ({goal}): trial {short(best.trial)} with {short(value)}")
    if scores:
        notes.append(explain(influences, metric.removeprefix("metric.")))
    if len(names) > MAX_PANELS:
        notes.append(f"{len(names) - MAX_PANELS} more parameters")
    return Figure(f"{metric} by parameter", tuple(panels), "; ".join(notes))


def _parameter_panel(
    rows: Sequence[Row], parameter: str, metric: str, goal: str | None
) -> tuple[Panel, str]:
    known = table.Columns(rows)
    read = known.reader(parameter)
    measured = [
        (read(row), result, row)
        for row, result in zip(rows, table.numbers(rows, metric), strict=True)
        if result is not None and read(row) is not None
    ]
    y = Axis(metric, "log" if _is_wide([result for _, result, _ in measured]) else "linear")
    notes = []
    if len(measured) < len(rows):
        notes.append(f"{len(rows) - len(measured)} of {len(rows)} trials have no value")
    boxes: tuple[Box, ...] = ()
    numbers = [table.number(value) for value, _, _ in measured]
    if all(value is not None for value in numbers):
        places = [value for value in numbers if value is not None]
        x = Axis(parameter, "log" if _is_wide(places) else "linear")
    else:
        names = _categories([value for value, _, _ in measured])
        if len(names) > MAX_CATEGORIES:
            notes.append(f"{len(names) - MAX_CATEGORIES} more values of {parameter}")
            names = names[:MAX_CATEGORIES]
        measured = [entry for entry in measured if short(entry[0]) in names]
        x = Axis(parameter, "category", tuple(names))
        spots = [names.index(short(value)) for value, _, _ in measured]
        boxes = _boxes(spots, [result for _, result, _ in measured])
        # Spread the dots so that equal values stay visible. The offset depends on the index only:
        # the same rows always give the same plot.
        places = [spot + (i * 0.618 % 1 - 0.5) * 0.5 for i, spot in enumerate(spots)]
    points = [(place, result) for place, (_, result, _) in zip(places, measured, strict=True)]
    best = table.best([row for _, _, row in measured], metric, goal)
    series = [
        Series(
            "",
            tuple(p for p, (_, _, row) in zip(points, measured, strict=True) if row is not best),
            "dots",
        )
    ]
    for point, (_, _, row) in zip(points, measured, strict=True):
        if row is best:
            label = f"best ({goal}): trial {short(row.trial)} with {short(float(point[1]))}"
            series.append(Series(label, (point,), "dots", "best"))
    return Panel(x, y, tuple(series), boxes), "; ".join(notes)


def _categories(values: list[object]) -> list[str]:
    return list(dict.fromkeys(short(value) for value in sorted(values, key=table.rank)))


def _boxes(spots: list[int], results: list[float]) -> tuple[Box, ...]:
    boxes = []
    for spot in sorted(set(spots)):
        values = sorted(y for place, y in zip(spots, results, strict=True) if place == spot)
        if len(values) >= _FEWEST_FOR_BOX:
            q1, median, q3 = (_quantile(values, part) for part in (0.25, 0.5, 0.75))
            boxes.append(Box(spot, values[0], q1, median, q3, values[-1]))
    return tuple(boxes)


def _quantile(values: list[float], part: float) -> float:
    position = part * (len(values) - 1)
    below = int(position)
    above = min(below + 1, len(values) - 1)
    share = position - below
    return values[below] * (1 - share) + values[above] * share


def _is_wide(values: Sequence[float]) -> bool:
    """Whether the values span so many decades that a log axis is needed."""
    finite = [value for value in values if math.isfinite(value)]
    return (
        len(finite) > 1
        and min(finite) > 0
        and math.log10(max(finite)) - math.log10(min(finite)) >= _DECADES_FOR_LOG - 0.01
    )
