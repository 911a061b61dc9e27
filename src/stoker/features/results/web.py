"""Routes for charts and comparisons of selected runs, and for reports of sweeps."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from stoker.client.queue import Queue
from stoker.features.results.report_html import html
from stoker.features.results.report_markdown import markdown
from stoker.features.results.run_charts import (
    MAX_LINES,
    MAX_METRICS,
    MAX_POINTS,
    ChartRequest,
    charts_json,
    make_charts,
)
from stoker.features.results.run_comparison import (
    DEFAULT_RUNS,
    MAX_RUNS,
    compare_runs,
    comparison_json,
)
from stoker.features.results.run_selection import MAX_WORDS, RunSelector
from stoker.features.results.sweep_report import ReportRequest, sweep_report
from stoker.web.context import WebContext, web_of
from stoker.web.models import Answer
from stoker.web.responses import json_response
from stoker.web.routes_read import ERRORS, Short, SweepName

Points = list[list[float | None]]


class ChartLine(BaseModel):
    run: str = Field(description="selects exactly this run: a job id, or SWEEP/TRIAL")
    label: str
    job: int | None
    sweep: str | None
    trial: int | None
    state: str
    params: dict[str, Any]
    rank: float | None = Field(
        description="by the last value: 0 for the best of the selected runs, 1 for the worst;"
        " null without a finite value, and without a goal"
    )
    points: Points = Field(description="[x, y]; y is null in a gap")
    raw: Points | None = Field(description="before smoothing; null without smoothing")


class FinalValues(BaseModel):
    """Statistics of the last values of a group, as in `stoker results --group`."""

    n: int
    mean: float | None
    sd: float | None = Field(description="sample standard deviation")
    min: float | None
    max: float | None
    missing: int = Field(description="runs whose last value is NaN or not a number")


class Band(BaseModel):
    label: str
    value: Any = Field(description="of the column; a list with several columns")
    runs: int
    mean: Points
    low: Points = Field(description="the lowest value at each x")
    high: Points = Field(description="the highest value at each x")
    final: FinalValues


class Chart(BaseModel):
    metric: str
    goal: str | None = Field(description="min or max; null: not known, so that no run is the best")
    guessed: bool = Field(description="whether the goal was guessed from the name of the metric")
    lines: list[ChartLine] = Field(description="the best first")
    left_off: int = Field(description="runs that reported the metric but have no line")
    note: str | None = Field(description="why the chart is empty or incomplete")
    bands: list[Band] | None = Field(None, description="only with `group`; the best mean first")
    band: str | None = Field(None, description="what a band shows, in words")


class ChartsAnswer(Answer):
    metrics: list[str] = Field(description="all metrics that the runs reported")
    x: Literal["step", "time"] = Field(description="time: seconds since the start of the run")
    charts: list[Chart]


class ComparedRun(BaseModel):
    run: str
    label: str
    job: int | None
    sweep: str | None
    trial: int | None
    state: str
    cause: str | None
    backend: str
    place: str | None
    duration: float | None = Field(description="seconds")
    started: str | None
    ended: str | None


class Property(BaseModel):
    name: str
    values: list[Any] = Field(description="one for each run; null: the run does not have it")
    differs: bool


class MetricProperty(Property):
    best: int | None = Field(
        description="the position of the best value; null if the goal of the metric is not known"
    )


class CompareAnswer(Answer):
    runs: list[ComparedRun]
    params: list[Property]
    metrics: list[MetricProperty] = Field(description="last values")
    code: list[Property] = Field(description="commit, versions, host, GPU, command")
    left_off: int = Field(description="selected runs that are not compared")


router = APIRouter(prefix="/api", responses=ERRORS, tags=["read"])

Word = Annotated[str, Query(min_length=1, max_length=300)]
Runs = Annotated[
    list[Word],
    Query(min_length=1, max_length=MAX_WORDS, description="job ids, sweeps, or SWEEP/TRIAL"),
]


@router.get("/curves", response_model=ChartsAnswer)
async def curves(
    request: Request,
    runs: Runs,
    metric: Annotated[
        list[Word], Query(max_length=MAX_METRICS, description="NAME or NAME:GOAL")
    ] = [],  # noqa: B006
    x: Literal["step", "time"] = "step",
    smooth: Annotated[float, Query(ge=0, le=0.999)] = 0.0,
    group: Annotated[str | None, Query(max_length=1000, description="columns, by comma")] = None,
    points: Annotated[int, Query(ge=4, le=MAX_POINTS)] = 300,
    lines: Annotated[int, Query(ge=0, le=MAX_LINES)] = 50,
) -> Response:
    """The curves of runs, one chart for each metric. Without `metric`: that of the sweeps, or the
    first that were reported. With `group`, also the mean of each group and its band, over all
    selected runs. `smooth` is the weight of a debiased exponential moving average."""
    wanted = ChartRequest(
        metrics=tuple(metric),
        x=x,
        smooth=smooth,
        group=tuple(name.strip() for name in group.split(",")) if group else (),
        points=points,
        lines=lines,
    )
    web = web_of(request)

    def read(queue: Queue) -> dict[str, object]:
        selection = run_selector(web, queue).select(runs)
        charts = make_charts(selection, web.curves, wanted)
        return charts_json(selection, charts, wanted)

    return json_response(request, await web.threads.read(read))


@router.get("/compare", response_model=CompareAnswer)
async def compare(
    request: Request, runs: Runs, limit: Annotated[int, Query(ge=1, le=MAX_RUNS)] = DEFAULT_RUNS
) -> Response:
    """Parameters, last metrics and provenance of runs, side by side. Of more than `limit` runs,
    the best are compared."""
    web = web_of(request)

    def read(queue: Queue) -> dict[str, object]:
        return comparison_json(compare_runs(queue.db, run_selector(web, queue).select(runs), limit))

    return json_response(request, await web.threads.read(read))


def run_selector(web: WebContext, queue: Queue) -> RunSelector:
    return RunSelector(
        queue.db,
        web.reports.places,
        of_sweep=web.sweeps.reported_of,
        of_jobs=web.reports.of_jobs,
        is_limited=True,
    )


_TYPES = {"md": "text/markdown", "html": "text/html"}
_FILES: dict[int | str, dict[str, object]] = {
    200: {"content": {kind: {} for kind in _TYPES.values()}, "description": "a file"}
}
# Instead of the policy for pages: a report that is opened in the browser runs nothing either.
_HARMLESS = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; sandbox"
)


@router.get("/sweeps/{name}/report", response_class=Response, responses={**ERRORS, **_FILES})
async def report(
    request: Request,
    name: SweepName,
    format: Literal["md", "html"] = "html",
    metric: Short = None,
    group: Short = None,
    smooth: Annotated[float, Query(ge=0, le=0.999)] = 0.0,
) -> Response:
    """A report of a sweep: its note, failures, best trials, groups over seeds, curves, parameter
    importance, provenance, and the commands to repeat it."""
    web = web_of(request)
    wanted = ReportRequest(
        metric=metric or None,
        group=tuple(part.strip() for part in (group or "").split(",") if part.strip()),
        smooth=smooth,
    )

    def read(queue: Queue) -> str:
        selector = run_selector(web, queue)
        found = sweep_report(queue, name, wanted, selector=selector, cache=web.curves)
        return html(found) if format == "html" else markdown(found)

    text = await web.threads.read(read)
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:80].strip("-") or "sweep"
    headers = {
        "Content-Disposition": f'attachment; filename="{stem}-report.{format}"',
        "Content-Security-Policy": _HARMLESS,
    }
    return Response(text.encode("utf-8", "replace"), 200, headers, _TYPES[format])
