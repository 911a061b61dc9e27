"""Draw figures as PNG or SVG with matplotlib: no pyplot, no window, no global state."""

from __future__ import annotations

import io
import math
import textwrap
import threading
import warnings
from typing import Any

from stoker.errors import UsageError
from stoker.features.results.figure import Axis, Figure, Fill, Panel, Series
from stoker.features.results.optional_imports import load
from stoker.text.terminal import printable

# The Okabe-Ito palette, safe for color-blind readers; vermilion is reserved for the best trial.
_COLORS = ("#0072b2", "#009e73", "#e69f00", "#56b4e9", "#cc79a7", "#7f5fa8", "#8a6d3b", "#4d4d4d")
_BEST = "#d55e00"
_FAINT = "#b8b8b8"
_INK = "#333333"
_GRID = "#e6e6e6"
_NOTE_CHARS = 16  # of the note in an inch
FORMATS = ("png", "svg")
_lock = threading.Lock()  # matplotlib is not thread-safe, and the web server has several threads


def draw(
    figure: Figure,
    form: str = "png",
    *,
    width: float | None = None,
    height: float | None = None,
    dpi: int = 150,
) -> bytes:
    """Return the content of an image file; `width` and `height` are in inches."""
    if form not in FORMATS:
        raise UsageError(
            f"`{form}` is not a supported image format", f"use one of {', '.join(FORMATS)}"
        )
    matplotlib = load("matplotlib.figure", "plot")
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about characters that the font lacks
        return _drawn(matplotlib, figure, form, width, height, dpi)


def _drawn(
    matplotlib: Any, figure: Figure, form: str, width: float | None, height: float | None, dpi: int
) -> bytes:
    across = 1 if len(figure.panels) < 2 else 2 if len(figure.panels) < 5 else 3
    rows = max(1, -(-len(figure.panels) // across))
    is_alone = rows * across == 1
    size = (
        width or (8.0 if is_alone else 3.6 * across),
        height or (4.5 if is_alone else 2.9 * rows + 0.6),
    )
    canvas = matplotlib.Figure(figsize=size, dpi=dpi, layout="constrained", facecolor="white")
    canvas.suptitle(
        _text(figure.title), x=0.01, ha="left", fontsize=12, fontweight="bold", color=_INK
    )
    for number, panel in enumerate(figure.panels):
        axes = canvas.add_subplot(rows, across, number + 1)
        _panel(axes, panel, shows_y=number % across == 0)
    if len(figure.panels) == 1:
        _legend(canvas)
    if figure.note:
        lines = map(_text, textwrap.wrap(figure.note, int(size[0] * _NOTE_CHARS)))
        canvas.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=8, color="#777777")
    file = io.BytesIO()
    canvas.savefig(file, format=form, metadata={"Date": None} if form == "svg" else None)
    return file.getvalue()


def _text(text: str) -> str:
    """Escape untrusted text: no control characters, no mathtext between dollar signs."""
    return printable(text).replace("\\$", "$").replace("$", "\\$")


def _panel(axes: Any, panel: Panel, *, shows_y: bool) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#999999")
    axes.tick_params(which="both", labelcolor=_INK, labelsize=8, color="#999999")
    axes.grid(True, axis="both" if panel.x.scale != "category" else "y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for box in panel.boxes:
        _box(axes, box.at, box.low, box.q1, box.median, box.q3, box.high)
    named = 0
    order = ("faint", "plain", "best")
    for series in sorted(panel.series, key=lambda one: order.index(one.role)):
        color = _COLORS[named % len(_COLORS)]
        named += bool(series.label) and series.role == "plain"
        _series(axes, series, color, panel)
        for fill in panel.fills:
            if panel.series[fill.series] is series:
                _fill(axes, fill, _BEST if series.role == "best" else color, panel)
    points = [
        point for series in panel.series for point in series.points if _is_shown(point, panel)
    ]
    if points and panel.x.scale == "log":  # matplotlib raises on an empty log axis
        axes.set_xscale("log")
    if points and panel.y.scale == "log":
        axes.set_yscale("log")
    if panel.x.scale == "category":
        _categories(axes, panel.x)
    if panel.title:
        axes.set_title(_text(panel.title), loc="left", fontsize=9, color=_INK)
    else:
        axes.set_xlabel(_text(panel.x.label), fontsize=9, color=_INK)
    if shows_y:
        axes.set_ylabel(_text(panel.y.label), fontsize=9, color=_INK)
    if not points:
        axes.text(0.5, 0.5, "no data yet", ha="center", transform=axes.transAxes, color=_FAINT)


def _categories(axes: Any, axis: Axis) -> None:
    names = [_text(_cut(name)) for name in axis.categories]
    crowded = sum(map(len, names)) > 50
    axes.set_xticks(range(len(names)), names)
    axes.tick_params(axis="x", rotation=20 if crowded else 0)
    axes.set_xlim(-0.5, max(0.5, len(names) - 0.5))


def _cut(text: str) -> str:
    return text if len(text) <= 24 else text[:23] + "…"


def _series(axes: Any, series: Series, color: str, panel: Panel) -> None:
    xs = [float(x) if _is_shown((x, y), panel) else math.nan for x, y in series.points]
    ys = [float(y) if _is_shown((x, y), panel) else math.nan for x, y in series.points]
    label = _text(series.label) or "_"
    if series.style == "dots":
        if series.role == "best":
            axes.scatter(
                xs,
                ys,
                s=110,
                marker="*",
                color=_BEST,
                edgecolors="white",
                linewidths=0.8,
                zorder=5,
                label=label,
            )
        else:
            axes.scatter(
                xs, ys, s=22, color=_COLORS[0], alpha=0.65, linewidths=0, zorder=3, label=label
            )
        return
    width, ink, above = {
        "best": (2.2, _BEST, 5),
        "plain": (1.2, color, 4),
        "faint": (0.8, _FAINT, 2),
    }[series.role]
    marker = "o" if sum(map(math.isfinite, ys)) < 3 else None
    axes.plot(
        xs, ys, color=ink, linewidth=width, zorder=above, label=label, marker=marker, markersize=3
    )


def _fill(axes: Any, fill: Fill, color: str, panel: Panel) -> None:
    xs = [float(x) for x, _ in fill.low]
    ends = []
    for points in (fill.low, fill.high):
        ends.append([float(y) if _is_shown((x, y), panel) else math.nan for x, y in points])
    axes.fill_between(xs, *ends, color=color, alpha=0.15, linewidth=0, zorder=1)


def _is_shown(point: tuple[float, float], panel: Panel) -> bool:
    return _fits(point[0], panel.x) and _fits(point[1], panel.y)


def _fits(value: float, axis: Axis) -> bool:
    """Whether a value can be drawn; matplotlib's ticks overflow near the limits of floats."""
    if axis.scale == "log" and value < 1e-200:
        return False
    return math.isfinite(value) and abs(value) < 1e200


def _box(
    axes: Any, at: float, low: float, q1: float, median: float, q3: float, high: float
) -> None:
    left, right = at - 0.32, at + 0.32
    axes.vlines([at, at], [low, q3], [q1, high], color="#999999", linewidth=0.9, zorder=1)
    axes.fill_between([left, right], [q1, q1], [q3, q3], color="#eef2f6", zorder=1)
    axes.hlines([q1, q3], left, right, color="#c3ccd6", linewidth=0.8, zorder=1)
    axes.vlines([left, right], q1, q3, color="#c3ccd6", linewidth=0.8, zorder=1)
    axes.hlines(median, left, right, color=_INK, linewidth=1.4, zorder=2)


def _legend(canvas: Any) -> None:
    axes = canvas.axes[0]
    handles = [
        handle for handle in [*axes.lines, *axes.collections] if handle.get_label()[:1] != "_"
    ]
    if not handles:
        return
    handles.sort(key=lambda handle: -handle.get_zorder())
    if len(handles) > 1:
        canvas.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=8)
    else:
        axes.legend(handles=handles, loc="best", frameon=False, fontsize=8)
