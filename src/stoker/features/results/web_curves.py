"""Routes for charts and comparisons of selected runs."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from stoker.client.queue import Queue
from stoker.features.results import web_models as curve_models
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
from stoker.web.context import WebContext, web_of
from stoker.web.responses import json_response
from stoker.web.routes_read import ERRORS

router = APIRouter(prefix="/api", responses=ERRORS, tags=["read"])

Word = Annotated[str, Query(min_length=1, max_length=300)]
Runs = Annotated[
    list[Word],
    Query(min_length=1, max_length=MAX_WORDS, description="job ids, sweeps, or SWEEP/TRIAL"),
]


@router.get("/curves", response_model=curve_models.ChartsAnswer)
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


@router.get("/compare", response_model=curve_models.CompareAnswer)
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
