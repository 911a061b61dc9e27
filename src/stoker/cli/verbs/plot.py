"""`stoker plot`: learning curves and parameter plots, in the terminal or as an image."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from stoker.cli.output import notice, print_json, wants_color
from stoker.cli.verbs.results import chosen_metric, find_reported, write_export
from stoker.client.reports import JobFiles, Reported, curve_of
from stoker.core.formats.command_line import Option, Parsed, Verb, count
from stoker.core.formats.terminal import printable
from stoker.errors import NotFound, UsageError
from stoker.results.curves import downsample
from stoker.results.figure import (
    Figure,
    TrialCurve,
    learning_curves,
    overview,
    parameter_plot,
)
from stoker.results.table import Columns, number, numbers, varying
from stoker.sweeps.spec import Metric

VERB = Verb(
        "plot",
        "plot [OPTIONS] SWEEP | JOBS... | FOLDER",
        "Plot the learning curves of trials, or a metric against parameters.",
        (
            Option("-m --metric", "the metric: val_loss or acc:max (default: that of the sweep)",
                   "NAME[:GOAL]"),
            Option("-p --param", "plot the metric against this parameter", "NAME"),
            Option("-a --params", "plot the metric against every parameter"),
            Option("-o --output", "write an image: .png or .svg (needs stoker[plot])", "FILE"),
            Option("--log-x", "logarithmic axis for steps"),
            Option("--log-y", "logarithmic axis for values"),
            Option("--ascii", "use only ASCII characters"),
            Option("--width", "columns, 24 to 1000 (default: width of the terminal)", "N", count),
            Option("--height", "lines, 6 to 500 (default: height of the terminal, at most 40)",
                   "N", count),
        ),
        (
            ("stoker plot brave-otter", "learning curves"),
            ("stoker plot brave-otter --param lr", ""),
            ("stoker plot brave-otter --params -o overview.png", ""),
            ("stoker plot 12 13 --metric val_loss", "jobs outside a sweep"),
        ),
        words="sweeps",
    )  # fmt: skip
_POINTS = 500
_BOUNDS = {"width": (24, 1000), "height": (6, 500)}


def run(parsed: Parsed) -> int:
    places, spec, reported = find_reported(parsed.words, "plot")
    metric = chosen_metric(parsed["metric"], spec) or _only_metric(reported)
    rows = [one.row for one in reported]
    if not any(metric.name in row.metrics for row in rows):
        known = sorted({name for row in rows for name in row.metrics})
        raise NotFound(
            f"no trial has reported `{metric.name}`",
            f"reported metrics: {', '.join(known)}" if known else "no metrics were reported yet",
        )
    if parsed["output"] is None and parsed["json"]:
        print_json(metric=metric.name, goal=metric.goal,
                   **_data(places, reported, metric, parsed))  # fmt: skip
        return 0
    if parsed["param"] is not None:
        figure = parameter_plot(rows, parsed["param"], f"metric.{metric.name}", metric.goal)
    elif parsed["params"]:
        figure = overview(rows, f"metric.{metric.name}", metric.goal)
    else:
        figure = _curves(places, reported, metric, parsed)
    if parsed["output"] is not None:
        return _write(figure, parsed)
    from stoker.results.terminal_plot import draw, knows_unicode

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


def _data(
    places: JobFiles, reported: list[Reported], metric: Metric, parsed: Parsed
) -> dict[str, object]:
    """The data of the plot for --json; values that are not finite are null."""
    rows = [one.row for one in reported]
    if parsed["param"] is None and not parsed["params"]:
        return {"curves": [
            {"trial": one.row.trial, "job": one.row.job, "params": one.row.params,
             "points": [[step, number(value)] for step, value in points]}
            for one, points in _points(places, reported, metric)
        ]}  # fmt: skip
    known = Columns(rows)
    names = [known.find(parsed["param"])] if parsed["param"] is not None else varying(rows)
    results = numbers(rows, f"metric.{metric.name}")
    return {"parameters": [
        {"name": name, "points": [
            {"trial": row.trial, "job": row.job, "value": value, "result": result}
            for row, value, result in zip(rows, map(known.reader(name), rows), results, strict=True)
        ]}
        for name in names
    ]}  # fmt: skip


def _points(
    places: JobFiles, reported: list[Reported], metric: Metric
) -> Iterator[tuple[Reported, list[tuple[float, float]]]]:
    for one in reported:
        if one.source is not None and metric.name in one.summary:
            yield one, downsample(curve_of(places, one.source, metric.name), _POINTS)


def _only_metric(reported: list[Reported]) -> Metric:
    from stoker.sweeps.spec import make_metric

    names = list(dict.fromkeys(name for one in reported for name in one.row.metrics))
    if len(names) == 1:
        return make_metric(names[0])
    if not names:
        raise NotFound("no metrics were reported yet", "how to report them: stoker results --help")
    raise UsageError(
        "the trials report several metrics; choose one", f"--metric {' or '.join(names[:5])}"
    )


def _curves(places: JobFiles, reported: list[Reported], metric: Metric, parsed: Parsed) -> Figure:
    curves = []
    for one, points in _points(places, reported, metric):
        trial = one.row.trial if one.row.trial is not None else one.row.job
        label = ", ".join(f"{key}={value}" for key, value in one.row.params.items())
        curves.append(TrialCurve(trial or 0, points, label))
    return learning_curves(
        curves, metric.name, metric.goal, log_x=bool(parsed["log_x"]),
        log_y=True if parsed["log_y"] else None,
    )  # fmt: skip


def _write(figure: Figure, parsed: Parsed) -> int:
    path = parsed["output"]
    form = path.rpartition(".")[2].lower()
    if form not in ("png", "svg"):
        raise UsageError(f"`{path}` has an unknown suffix", "use .png or .svg")
    from stoker.results.image_plot import draw

    write_export(path, draw(figure, form), parsed)
    if parsed["json"]:
        if not parsed["to_stdout"]:
            print_json(file=path)
    else:
        notice(f"wrote {printable(path)}")
    return 0
