"""Charts of selected runs: which metrics, runs and points they show.

`chart.py` computes the numbers, for `stoker plot` and for the web UI."""

from __future__ import annotations

from math import isfinite

from stoker.errors import UsageError
from stoker.features.results.chart import (
    BAND,
    MAX_BANDS,
    STEP,
    TIME,
    Band,
    Curve,
    group_curves,
    over_time,
    ranks,
    reduced,
    smoothed,
    thin,
)
from stoker.features.results.curve_reader import CurveCache
from stoker.features.results.run_selection import Run, Selection
from stoker.features.results.table import number
from stoker.features.sweeps.spec.spec import Metric, make_metric, read_metric
from stoker.record import Record
from stoker.text.finite_values import finite
from stoker.text.plurals import plural

MAX_METRICS = 30
MAX_POINTS = 2000
MAX_LINES = 500
_MAX_SENT = 1_000_000  # points of one answer
_DEFAULT_METRICS = 4


class ChartRequest(Record):
    """What to show. Without metrics: that of the sweep, or the first that were reported."""

    metrics: tuple[str, ...] = ()  # each NAME or NAME:GOAL
    x: str = STEP  # or TIME
    smooth: float = 0.0
    group: tuple[str, ...] = ()  # columns
    points: int = 300
    lines: int = 50


class ChartLine(Record):
    run: Run
    rank: float | None  # 0 for the best run, 1 for the worst
    curve: Curve
    raw: Curve | None  # not smoothed; None without smoothing


class Chart(Record):
    metric: Metric
    lines: list[ChartLine]  # the best first, or in the order of the runs without a goal
    bands: list[Band] | None  # None: not grouped
    left_off: int  # runs that reported the metric but have no line
    note: str | None


def make_charts(selection: Selection, cache: CurveCache, request: ChartRequest) -> list[Chart]:
    """Raises UsageError for values that are out of range and for unknown columns."""
    check_request(request)
    metrics = chosen_metrics(selection, request.metrics)
    if len(metrics) * request.lines * request.points > _MAX_SENT:
        raise UsageError(
            f"{len(metrics)} metrics with {request.lines} lines of {request.points} points are too"
            " much for one answer",
            "ask for fewer metrics, lines or points",
        )
    maker = _ChartMaker(selection, cache, request, [metric.name for metric in metrics])
    return [maker.chart(metric) for metric in metrics]


def check_request(request: ChartRequest) -> None:
    if not 0 <= request.smooth < 1:
        raise UsageError(
            f"the smoothing {request.smooth:g} is out of range",
            "use 0 (none) to 0.999, for example 0.6",
        )
    if request.x not in (STEP, TIME):
        raise UsageError(f"`{request.x}` is not an axis", "use step or time")
    if len(request.metrics) > MAX_METRICS:
        raise UsageError(
            f"{len(request.metrics)} metrics are too many; the limit is {MAX_METRICS}",
            "ask for the others separately",
        )


def chosen_metrics(selection: Selection, words: tuple[str, ...]) -> list[Metric]:
    """The requested metrics, or the default ones, each with its goal if that is known."""
    own = {metric.name: metric for metric in selection.own_metrics}
    if words:
        found = [read_metric(word, selection.own_metrics) for word in dict.fromkeys(words)]
        return list({metric.name: metric for metric in found}.values())
    names = selection.metric_names
    default = [name for name in own if name in names]
    if not default:
        numeric = {
            name
            for run in selection.runs
            for name, stat in run.summary.items()
            if stat.min is not None
        }
        default = [name for name in names if name in numeric][:_DEFAULT_METRICS] or list(own)
    return [own.get(name) or make_metric(name) for name in default]


class _ChartMaker:
    def __init__(
        self, selection: Selection, cache: CurveCache, request: ChartRequest, names: list[str]
    ) -> None:
        self._selection = selection
        self._cache = cache
        self._request = request
        self._names = names
        self._notes: list[str] = []

    def chart(self, metric: Metric) -> Chart:
        request = self._request
        runs = [
            run
            for run in self._selection.runs
            if metric.name in run.summary and run.reported.source is not None
        ]
        if not runs:
            bands: list[Band] | None = [] if request.group else None
            return Chart(metric, [], bands, 0, f"no run has reported `{metric.name}`")
        placed = ranks([number(run.row.metrics.get(metric.name)) for run in runs], metric.goal)
        order = sorted(range(len(runs)), key=lambda place: _last_if_none(placed[place]))
        shown = set(order[: request.lines])
        self._notes = []
        curves = [
            self._curve(run, metric.name) if request.group or place in shown else None
            for place, run in enumerate(runs)
        ]
        lines = []
        for place in order[: request.lines]:
            curve = curves[place]
            assert curve is not None
            even = smoothed(curve, request.smooth)
            raw = self._reduced(curve) if request.smooth else None
            lines.append(ChartLine(runs[place], placed[place], self._reduced(even), raw))
        bands = self._bands(runs, metric, curves) if request.group else None
        untimed = sum(curve is not None and not curve.xs for curve in curves)
        if untimed and request.x == TIME:
            self._notes.append(
                f"{plural(untimed, 'run')} reported without times and cannot be shown over time;"
                " stoker.log() writes the time"
            )
        note = "; ".join(self._notes) or None
        return Chart(metric, lines, bands, len(runs) - len(lines), note)

    def _curve(self, run: Run, name: str) -> Curve:
        source = run.reported.source
        assert source is not None
        names = [one for one in self._names if one in run.summary]
        line = self._cache.lines(source, names)[name]
        if self._request.x == STEP:
            return Curve(line.steps, line.values)
        return over_time(line.times, line.values, run.started_at)

    def _reduced(self, curve: Curve) -> Curve:
        return reduced(curve, self._request.points)

    def _bands(self, runs: list[Run], metric: Metric, curves: list[Curve | None]) -> list[Band]:
        request = self._request
        rows = self._selection.rows_of(runs)
        bands, total = group_curves(
            rows, request.group, metric.name, curves, request.smooth, metric.goal
        )
        if total > MAX_BANDS:
            self._notes.append(
                f"{len(bands)} of {total:,} groups are shown, those with the best mean"
            )
        reduced = []
        for band in bands:
            fewer = thin(len(band.mean.xs), request.points)
            reduced.append(
                band._replace(mean=fewer(band.mean), low=fewer(band.low), high=fewer(band.high))
            )
        return reduced


def _last_if_none(rank: float | None) -> float:
    return 2.0 if rank is None else rank


# -- JSON -----------------------------------------------------------------------------------------


def charts_json(
    selection: Selection, charts: list[Chart], request: ChartRequest
) -> dict[str, object]:
    """The answer of /api/curves, and of `stoker plot --json`."""
    return {
        "metrics": selection.metric_names,
        "x": request.x,
        "charts": [chart_json(chart) for chart in charts],
    }


def chart_json(chart: Chart) -> dict[str, object]:
    """One chart; `stoker plot --json` prints it too."""
    content: dict[str, object] = {
        "metric": chart.metric.name,
        "goal": chart.metric.goal,
        "guessed": chart.metric.is_guessed,
        "lines": [_line_json(line) for line in chart.lines],
        "left_off": chart.left_off,
        "note": chart.note,
    }
    if chart.bands is not None:
        content["bands"] = [_band_json(band) for band in chart.bands]
        content["band"] = BAND
    return content


def _line_json(line: ChartLine) -> dict[str, object]:
    run = line.run
    return {
        "run": run.word,
        "label": run.label,
        "job": run.row.job,
        "sweep": run.sweep,
        "trial": run.row.trial,
        "state": run.row.state,
        "params": finite(run.row.params),
        "rank": line.rank,
        "points": _points(line.curve),
        "raw": None if line.raw is None else _points(line.raw),
    }


def _band_json(band: Band) -> dict[str, object]:
    final = band.final
    return {
        "label": band.label,
        "value": finite(band.value),
        "runs": band.runs,
        "mean": _points(band.mean),
        "low": _points(band.low),
        "high": _points(band.high),
        "final": finite(
            {
                "n": final.n,
                "mean": final.mean,
                "sd": final.sd,
                "min": final.min,
                "max": final.max,
                "missing": final.missing,
            }
        ),
    }


def _points(curve: Curve) -> list[object]:
    return [
        [int(x) if x.is_integer() else round(x, 6), y if isfinite(y) else None]
        for x, y in zip(curve.xs, curve.ys, strict=True)
    ]
