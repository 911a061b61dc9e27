"""Gather the report of a sweep: `stoker report`, and the button of the web UI."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from stoker import __version__
from stoker.client.queue import Queue
from stoker.engine.store import job_queries
from stoker.errors import NotFound
from stoker.features.code import store as code_states
from stoker.features.code.views import code_words, machine_words
from stoker.features.notes import store as notes
from stoker.features.results import table
from stoker.features.results.curve_reader import CurveCache
from stoker.features.results.failure_groups import trial_failures
from stoker.features.results.figure import (
    CurveAxes,
    Figure,
    TrialCurve,
    band_plot,
    learning_curves,
    overview,
)
from stoker.features.results.importance import explain, importance
from stoker.features.results.reports.reports import JobFiles
from stoker.features.results.run_charts import ChartRequest, chosen_metrics, make_charts
from stoker.features.results.run_selection import RunSelector, Selection
from stoker.features.results.sweep_report_model import (
    FailedAlike,
    Provenance,
    Report,
    Step,
    groups_over_seeds,
    seed_like,
)
from stoker.features.results.table import Columns, Row, Table
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps import store_provenance as sweep_provenance
from stoker.features.sweeps.control import lifecycle
from stoker.features.sweeps.spec.identity import describe_template
from stoker.features.sweeps.spec.spec import Metric, SweepSpec
from stoker.features.sweeps.spec.value_text import command_text
from stoker.features.sweeps.store import SweepRow
from stoker.features.sweeps.sweep_states import sweep_state
from stoker.record import Record
from stoker.states import STATES
from stoker.text.commands.shell_words import display, quote
from stoker.text.durations import format_duration

_TOP = 10
_MOST_GROUPS = 50
_MOST_IMPORTANT = 12
_MOST_MACHINES = 10
_LINES = 30  # curves, those of the best trials
_POINTS = 200


class ReportRequest(Record):
    """What a report shows. Without a metric, that of the sweep or the first that was reported;
    without `group`, groups over the parameters that look like seeds."""

    metric: str | None = None  # NAME or NAME:GOAL
    group: tuple[str, ...] = ()
    top: int = _TOP
    smooth: float = 0.0


def sweep_report(
    queue: Queue,
    name: str,
    request: ReportRequest,
    *,
    selector: RunSelector | None = None,
    cache: CurveCache | None = None,
    now: float | None = None,
) -> Report:
    """The report of a sweep. A server passes its caches.

    Raises NotFound for an unknown sweep or metric, UsageError for unknown columns.
    """
    row, spec, base = lifecycle.load(queue.db, name)
    files = JobFiles(queue.settings.state_dir)
    selection = (selector or RunSelector(queue.db, files)).select([f"sweep:{row.name}"])
    rows = [run.row for run in selection.runs]
    counts = sweeps.counts(queue.db, row.id)
    metric = _metric(request, selection)
    best = _best_rows(rows, metric, request.top)
    when = time.time() if now is None else now
    report = Report(
        name=row.name,
        note=notes.note(queue.db, notes.SWEEP, row.id).text,
        tags=tuple(notes.tags(queue.db, notes.SWEEP, row.id)),
        state=sweep_state(queue.db, row, counts),
        stopped=row.stopped,
        trials={state: counts[state] for state in (*STATES, "missing") if counts.get(state)},
        total=sum(counts.values()),
        facts=_facts(spec, base.context.cwd, metric, row),
        failures=tuple(
            FailedAlike(one.size, one.result, one.job)
            for one in (trial_failures(rows, Columns(rows)) if rows else [])
        ),
        provenance=_provenance(queue, row),
        steps=_steps(queue, row.name, spec, command_text(row.name, spec, base), best, metric),
        made=time.strftime("Made %Y-%m-%d %H:%M:%S", time.localtime(when))
        + f" by Stoker {__version__}",
    )
    if metric is None:
        return report
    by = list(request.group) or groups_over_seeds(rows)
    found = importance(rows, f"metric.{metric.name}")
    return report._replace(
        best=_best_table(best, rows, metric),
        best_of=_goal_words(metric, best),
        groups=_groups(rows, by, metric) if by and rows else None,
        group_of=_group_words(rows, by, metric),
        figures=_figures(selection, cache or CurveCache(files), metric, by, request.smooth),
        importance=tuple(found[:_MOST_IMPORTANT]),
        explanation=explain(found, metric.name),
    )


def _metric(request: ReportRequest, selection: Selection) -> Metric | None:
    """The metric of the report; None if nothing was reported. Raises NotFound."""
    names = selection.metric_names
    if request.metric is not None:
        metric = chosen_metrics(selection, (request.metric,))[0]
        if metric.name not in names:
            known = ", ".join(names[:20])
            raise NotFound(
                f"no trial has reported `{metric.name}`",
                f"reported metrics: {known}" if known else "no trial has reported a metric yet",
            )
        return metric
    found = [one for one in chosen_metrics(selection, ()) if one.name in names]
    found.sort(key=lambda one: one.goal is None)
    return found[0] if found else None


def _best_rows(rows: list[Row], metric: Metric | None, top: int) -> list[Row]:
    if metric is None or metric.goal is None:
        return []
    measured = [row for row in rows if table.number(row.metrics.get(metric.name)) is not None]
    return table.best_first(measured, f"metric.{metric.name}", metric.goal)[:top]


def _best_table(best: list[Row], rows: list[Row], metric: Metric) -> Table:
    known = Columns(rows)
    params = [known.find(name) for name in table.varying(rows)]
    others = dict.fromkeys(name for row in best for name in row.metrics if name != metric.name)
    names = [f"metric.{metric.name}", *(f"metric.{name}" for name in list(others)[:5])]
    content = table.select_columns(best, ["trial", *params, *names, "seconds", "job"], known)
    lines = [(*line[:-2], _time(line[-2]), line[-1]) for line in content.lines]
    shown = (name.removeprefix("metric.") for name in content.names[:-2])
    return Table((*shown, "time", "job"), lines)


def _time(seconds: object) -> str | None:
    return format_duration(seconds) if isinstance(seconds, (int, float)) else None


def _goal_words(metric: Metric, best: list[Row]) -> str:
    name = metric.name
    if metric.goal is None:
        return (
            f"Whether {name} should be small or large is not known: stoker report --metric"
            f" {name}:min or {name}:max lists the best trials."
        )
    guess = " (guessed from its name)" if metric.is_guessed else ""
    first = "largest" if metric.goal == "max" else "smallest"
    return f"Sorted by the last {name}, the {first} first{guess}." if best else ""


def _groups(rows: list[Row], by: Sequence[str], metric: Metric) -> Table:
    """The numbers of `stoker results --group`, the best mean first."""
    content = table.grouped(rows, by, f"metric.{metric.name}")
    lines = table.ranked(content.lines, [line[-5] for line in content.lines], metric.goal)
    return Table(content.names, lines[:_MOST_GROUPS])


def _group_words(rows: list[Row], by: Sequence[str], metric: Metric) -> str:
    others = [name for name in table.varying(rows) if name not in by] if rows else []
    seeds = [name for name in others if seed_like(name)]
    over = ", ".join(seeds or others) or "all trials"
    return f"{over}: {metric.name} of trials that are equal in {', '.join(by)}"


def _figures(
    selection: Selection, cache: CurveCache, metric: Metric, by: Sequence[str], smooth: float
) -> tuple[Figure, ...]:
    """The curves of the best trials, those of groups, and the metric by parameters."""
    request = ChartRequest(
        metrics=(metric.name if metric.goal is None else f"{metric.name}:{metric.goal}",),
        smooth=smooth,
        group=tuple(by),
        points=_POINTS,
        lines=_LINES,
    )
    chart = make_charts(selection, cache, request)[0]
    curves = [
        TrialCurve(
            line.run.row.trial,
            line.curve.points(),
            line.run.label,
            line.run.row.metrics.get(metric.name),
        )
        for line in chart.lines
    ]
    found = []
    if any(len(curve.points) > 1 for curve in curves):
        found.append(learning_curves(curves, metric.name, metric.goal))
    if found and chart.bands:
        found.append(band_plot(chart.bands, metric.name, metric.goal, CurveAxes()))
    rows = [run.row for run in selection.runs]
    plots = overview(rows, f"metric.{metric.name}", metric.goal) if rows else None
    if plots is not None and plots.panels:
        found.append(plots)
    return tuple(found)


def _facts(
    spec: SweepSpec, folder: str, metric: Metric | None, row: SweepRow
) -> tuple[tuple[str, str], ...]:
    method = spec.method
    if spec.total_trials is not None:
        method += f", {spec.total_trials} trials"
    if spec.method != "grid" and spec.seed is not None:
        method += f", seed {spec.seed}"
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.created_at))
    facts = [
        ("command", describe_template(spec.template)),
        ("folder", folder),
        ("method", method),
        ("metric", "" if metric is None else metric.words),
        ("started", started),
    ]
    return tuple((name, value) for name, value in facts if value)


def _provenance(queue: Queue, row: SweepRow) -> tuple[Provenance, ...]:
    found = []
    for code, snapshot, trials in sweep_provenance.codes(queue.db, row.id)[:_MOST_MACHINES]:
        words = code_words(code)
        if code.commit is not None:
            words = words.replace(code.commit[:12], code.commit)
        words += f", in {code.root}" + (f", snapshot {snapshot}" if snapshot else "")
        found.append(Provenance("code", words, trials))
    for machine, python, trials in sweep_provenance.machines(queue.db, row.id)[:_MOST_MACHINES]:
        found.append(Provenance("ran with", machine_words(machine, python), trials))
    return tuple(found)


def _steps(
    queue: Queue,
    name: str,
    spec: SweepSpec,
    command: str | None,
    best: list[Row],
    metric: Metric | None,
) -> tuple[Step, ...]:
    shown = quote(name)
    if command is not None:
        steps = [Step("Run the sweep again on another machine or in an empty queue", command)]
    else:
        steps = [Step("Run the sweep again under another name", f"stoker sweep clone {shown}")]
    if best and best[0].job is not None:
        with suppress(NotFound):  # the job was removed; the trial stays
            steps += _steps_of_best(queue, job_queries.job(queue.db, best[0].job))
    order = "" if metric is None or metric.goal is None else f" --sort {quote(_sort_key(metric))}"
    steps.append(Step("All trials", f"stoker results {shown}{order}"))
    return tuple(steps)


def _steps_of_best(queue: Queue, row: job_queries.JobRow) -> Iterator[Step]:
    again = "Run the best trial again, with the code that it ran with"
    yield Step(again, f"stoker rerun --same-code {row.id}")
    command = f"cd {quote(row.cwd)} && {display(row.argv, row.shell)}"
    yield Step("The command of the best trial", command)
    code = code_states.of_job(queue.db, row.id)
    if code is not None and code.is_dirty:
        yield Step("How its code differed from the commit", f"stoker show {row.id} --diff")


def _sort_key(metric: Metric) -> str:
    return f"-{metric.name}" if metric.goal == "max" else metric.name
