"""Runs `stoker plot`: read the curves and draw them."""

from __future__ import annotations

import sys

from stoker.cli.output import notice, print_json, wants_color
from stoker.errors import NotFound, UsageError
from stoker.features.results.chart import STEP, TIME
from stoker.features.results.curve_reader import CurveCache
from stoker.features.results.export import short
from stoker.features.results.figure import (
    CurveAxes,
    Figure,
    TrialCurve,
    band_plot,
    learning_curves,
    overview,
    parameter_plot,
)
from stoker.features.results.results_command import (
    Found,
    chosen_metric,
    find_selection,
    write_export,
)
from stoker.features.results.run_charts import Chart, ChartRequest, chart_json, make_charts
from stoker.features.results.run_selection import Selection
from stoker.features.results.table import Columns, Row, numbers, varying
from stoker.features.sweeps.spec.spec import Metric
from stoker.text.command_line import Parsed
from stoker.text.terminal import printable

_POINTS = 500
_LINES = 2000
_BOUNDS = {"width": (24, 1000), "height": (6, 500)}


def run(parsed: Parsed) -> int:
    _check(parsed)
    found = find_selection(parsed.words, "plot")
    selection = found.selection
    metric = chosen_metric(parsed["metric"], selection) or _only_metric(selection)
    rows = selection.rows_of(selection.runs)
    known = sorted(selection.metric_names)
    if metric.name not in known:
        raise NotFound(
            f"no trial has reported `{metric.name}`",
            f"reported metrics: {', '.join(known)}" if known else "no metrics were reported yet",
        )
    if parsed["output"] is None and parsed["json"]:
        if parsed["param"] is None and not parsed["params"]:
            chart = _chart(found, metric, parsed)
            content = chart_json(chart)
            content["curves"] = content.pop("lines")
            print_json(**content, x=_axis(parsed))
        else:
            data = _data(rows, metric, parsed)
            print_json(metric=metric.name, goal=metric.goal, guessed=metric.is_guessed, **data)
        return 0
    if parsed["param"] is not None:
        figure = parameter_plot(rows, parsed["param"], f"metric.{metric.name}", metric.goal)
    elif parsed["params"]:
        figure = overview(rows, f"metric.{metric.name}", metric.goal)
    else:
        figure = _curves(_chart(found, metric, parsed), parsed)
    figure = figure._replace(note="; ".join(filter(None, (figure.note, _goal_note(metric)))))
    if parsed["output"] is not None:
        return _write(figure, parsed)
    from stoker.features.results.terminal_plot import draw, knows_unicode

    width, height = _size(parsed)
    plain = bool(parsed["ascii"]) or not knows_unicode(sys.stdout.encoding)
    print(draw(figure, width, height, color=wants_color(), ascii=plain))
    return 0


def _size(parsed: Parsed) -> tuple[int, int]:
    """Width and height: from the options, else $COLUMNS and $LINES, else the terminal."""
    for option, (least, most) in _BOUNDS.items():
        given = parsed[option]
        if given is not None and not least <= given <= most:
            raise UsageError(
                f"--{option} {given} is out of range", f"use a value from {least} to {most}"
            )
    from shutil import get_terminal_size

    size = get_terminal_size((80, 25))
    width = parsed["width"] or min(size.columns, _BOUNDS["width"][1])
    return width, parsed["height"] or min(size.lines - 1, 40)


def _data(rows: list[Row], metric: Metric, parsed: Parsed) -> dict[str, object]:
    """The points of a plot against parameters for --json; values that are not finite are null."""
    known = Columns(rows)
    names = [known.find(parsed["param"])] if parsed["param"] is not None else varying(rows)
    results = numbers(rows, f"metric.{metric.name}")
    return {
        "parameters": [
            {
                "name": name,
                "points": [
                    {"trial": row.trial, "job": row.job, "value": value, "result": result}
                    for row, value, result in zip(
                        rows, map(known.reader(name), rows), results, strict=True
                    )
                ],
            }
            for name in names
        ]
    }


def _only_metric(selection: Selection) -> Metric:
    from stoker.features.sweeps.spec.spec import make_metric

    names = selection.metric_names
    if len(names) == 1:
        return make_metric(names[0])
    if not names:
        raise NotFound("no metrics were reported yet", "how to report them: stoker results --help")
    raise UsageError(
        "the trials report several metrics; choose one", f"--metric {' or '.join(names[:5])}"
    )


def _check(parsed: Parsed) -> None:
    """Raises UsageError for options that do not fit together."""
    if parsed["x"] not in (None, STEP, TIME):
        raise UsageError(f"`{parsed['x']}` is not an axis", "use --x step or --x time")
    if parsed["param"] is None and not parsed["params"]:
        return
    own = "--param" if parsed["param"] is not None else "--params"
    for option in ("group", "smooth", "x"):
        if parsed[option] is not None:
            raise UsageError(
                f"--{option} cannot be combined with {own}, which plots no curves",
                f"leave out {own} to plot learning curves",
            )


def _axis(parsed: Parsed) -> str:
    return str(parsed["x"] or STEP)


def _chart(found: Found, metric: Metric, parsed: Parsed) -> Chart:
    """The curves, computed as for the web UI."""
    group = parsed["group"]
    request = ChartRequest(
        metrics=(metric.name if metric.goal is None else f"{metric.name}:{metric.goal}",),
        x=_axis(parsed),
        smooth=parsed["smooth"] or 0.0,
        group=tuple(name.strip() for name in group.split(",")) if group else (),
        points=_POINTS,
        lines=0 if group and not parsed["json"] else _LINES,
    )
    (chart,) = make_charts(found.selection, CurveCache(found.files), request)
    return chart._replace(metric=metric)


def _curves(chart: Chart, parsed: Parsed) -> Figure:
    metric, weight = chart.metric, parsed["smooth"]
    notes = [chart.note] if chart.note else []
    if weight:
        notes.append(f"smoothed with weight {weight:g}")
    axes = CurveAxes(
        x="seconds since the start" if _axis(parsed) == TIME else "step",
        log_x=bool(parsed["log_x"]),
        log_y=True if parsed["log_y"] else None,
    )
    if chart.bands is not None:
        return band_plot(chart.bands, metric.name, metric.goal, axes, notes)
    curves = []
    for line in chart.lines:
        label = ", ".join(f"{key}={short(value)}" for key, value in line.run.row.params.items())
        several = line.run.sweep is None or len({one.run.sweep for one in chart.lines}) > 1
        curves.append(
            TrialCurve(
                line.run.row.trial,
                line.curve.points(),
                line.run.label if several or not label else label,
                line.run.row.metrics.get(metric.name),
            )
        )
    if chart.left_off:
        notes.append(f"{chart.left_off} more runs are not drawn")
    return learning_curves(curves, metric.name, metric.goal, axes=axes, notes=notes)


def _goal_note(metric: Metric) -> str:
    """How the goal was found, if the user did not say it."""
    if metric.goal is None:
        return f"add --metric {metric.name}:min or {metric.name}:max to mark the best"
    return f"{metric.goal} was guessed from the name {metric.name}" if metric.is_guessed else ""


def _write(figure: Figure, parsed: Parsed) -> int:
    path = parsed["output"]
    form = path.rpartition(".")[2].lower()
    if form not in ("png", "svg"):
        raise UsageError(f"`{path}` has an unknown suffix", "use .png or .svg")
    from stoker.features.results.image_plot import draw

    write_export(path, draw(figure, form), parsed)
    if parsed["json"]:
        if not parsed["to_stdout"]:
            print_json(file=path)
    else:
        notice(f"wrote {printable(path)}")
    return 0
