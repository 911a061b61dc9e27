"""Routes that read: overview, jobs, logs, metrics, GPUs, sweeps and folders."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from stoker.client.live import log_view
from stoker.client.queue import Queue
from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.errors import NotFound
from stoker.features.code.views import diff_of_job
from stoker.features.history.gpu_history import history_json
from stoker.features.history.usage_charts import gpu_trace as gpu_trace_of
from stoker.features.history.usage_charts import job_trace as job_trace_of
from stoker.features.history.usage_charts import series_json
from stoker.features.results.reports.reports import source_of_job
from stoker.features.sweeps.control.clone import form_of_sweep
from stoker.states import STATES
from stoker.web import actions, job_table_view, models
from stoker.web.context import guard_request_of, web_of
from stoker.web.event_hub import Stream
from stoker.web.job_table_view import JobsQuery
from stoker.web.models import ErrorAnswer
from stoker.web.responses import json_response

ERRORS: dict[int | str, dict[str, object]] = {
    status: {"model": ErrorAnswer, "description": text}
    for status, text in (
        (400, "the request is invalid"),
        (401, "the token is missing or wrong"),
        (403, "wrong host, site or user; or the server is read-only"),
        (404, "not found"),
        (422, "the job can never run on this host"),
        (503, "try again later"),
    )
}
router = APIRouter(prefix="/api", responses=ERRORS, tags=["read"])

JobId = Annotated[int, Path(ge=1, le=2**62)]
Number = Annotated[int | None, Query(ge=0, le=2**62)]
Short = Annotated[str | None, Query(max_length=2000)]
Points = Annotated[int, Query(ge=4, le=2000)]
StreamName = Annotated[str, Query(pattern="^(stdout|stderr)$")]
_FOLDER_JOBS = 300  # the newest jobs, whose folders are suggested
_MAX_FOLDERS = 15


@router.get("/overview", response_model=models.Overview)
async def overview(request: Request) -> Response:
    """GPUs, backends, running jobs, the head of the queue, and the jobs that finished last."""
    web = web_of(request)
    return json_response(request, await web.threads.read(web.hub.overview))


def _content(kind: str, text: str) -> dict[int | str, dict[str, object]]:
    return {200: {"content": {kind: {}}, "description": text}}


@router.get(
    "/events", response_class=Response, responses=_content("text/event-stream", "an endless stream")
)
async def events(
    request: Request,
    after: Number = None,
    last_event_id: Annotated[str | None, Header(max_length=40)] = None,
) -> Response:
    """Server-sent events: `change`, and `reset` when the client must fetch the overview again."""
    known = after
    if last_event_id:
        known = int(last_event_id) if last_event_id.isdecimal() and last_event_id.isascii() else 0
    guard, checked = web_of(request).guard, guard_request_of(request)
    return Stream(web_of(request).hub, known, lambda: guard.is_still_allowed(checked))


@router.get("/jobs", response_model=models.JobsAnswer)
async def jobs(
    request: Request,
    state: Short = None,
    tag: Short = None,
    name: Short = None,
    sweep: Short = None,
    on: Short = None,
    q: Short = None,
    starred: bool = False,
    before: Number = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Jobs, newest first."""
    query = JobsQuery(state, tag, name, sweep, on, q, starred=starred)
    found = await web_of(request).threads.read(
        lambda queue: job_table_view.jobs_page(queue, query, before, limit)
    )
    return json_response(request, found)


@router.get("/jobs/{id}", response_model=models.JobAnswer)
async def job(request: Request, id: JobId) -> Response:
    """One job with its attempts, events, reasons for waiting, parameters and metrics."""
    web = web_of(request)
    found = await web.threads.read(
        lambda queue: job_table_view.job_in_full(queue, job_queries.job(queue.db, id), web.reports)
    )
    return json_response(request, {"job": found})


@router.get("/jobs/{id}/diff", response_model=models.DiffAnswer)
async def diff(request: Request, id: JobId) -> Response:
    """How the tracked files of the job's folder differed from their commit at submit."""

    def read(queue: Queue) -> dict[str, object]:
        text, problem = diff_of_job(queue.db, job_queries.job(queue.db, id).id)
        return {
            "diff": text.decode("utf-8", "replace") if problem is None else None,
            "problem": problem,
        }

    return json_response(request, await web_of(request).threads.read(read))


@router.get("/jobs/{id}/log", response_model=models.LogAnswer)
async def log(
    request: Request,
    id: JobId,
    attempt: Number = None,
    stream: StreamName = "stdout",
    tail: Annotated[int, Query(ge=0, le=log_view.MAX_RANGE_BYTES)] = 65536,
    from_: Annotated[int | None, Query(alias="from", ge=0, le=2**62)] = None,
    to: Number = None,
    start: Number = None,
    match: Number = None,
    raw: bool = False,
) -> Response:
    """The lines of a log as a terminal shows them, with colors; `raw` shows them as written.

    - Without `from`: the last `tail` bytes of the log, or before the byte `to`.
    - With `from`: at most 1 MiB. To continue an earlier response, send its `start`, and its `to`
      as `from`.
    - With `match`: the lines around a byte that `find` returned.
    """
    wanted = log_view.Wanted(begin=from_, end=to, tail=tail, match=match, start=start, is_raw=raw)
    web = web_of(request)
    found = await web.threads.read(
        lambda queue: log_view.read_lines(
            log_view.log_of_job(queue, id, attempt, stream), wanted, web.renderings
        )
    )
    return json_response(request, found)


@router.get(
    "/jobs/{id}/log/download", response_class=Response, responses=_content("text/plain", "a file")
)
async def download(
    request: Request, id: JobId, attempt: Number = None, stream: StreamName = "stdout"
) -> Response:
    """The whole log as a file."""
    web = web_of(request)
    found = await web.threads.read(lambda queue: log_view.log_of_job(queue, id, attempt, stream))
    descriptor = await web.threads.read(lambda queue: log_view.open_log(found))
    if descriptor is None:
        raise NotFound(f"job {id} has no log yet")
    name = f"job-{id}-{found.attempt}.{'err' if stream == 'stderr' else 'log'}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    body = _blocks_of(log_view.read_all(descriptor), request)
    return StreamingResponse(body, 200, headers, "text/plain")


async def _blocks_of(blocks: Iterator[bytes], request: Request) -> AsyncIterator[bytes]:
    threads = web_of(request).threads
    try:
        while (block := await threads.read(lambda queue: next(blocks, None))) is not None:
            yield block
    finally:
        blocks.close()  # type: ignore[attr-defined]


@router.get("/jobs/{id}/find", response_model=models.FoundAnswer)
async def find_in_log(
    request: Request,
    id: JobId,
    q: Annotated[str | None, Query(max_length=200)] = None,
    error: bool = False,
    attempt: Number = None,
    stream: StreamName = "stdout",
    from_: Annotated[int, Query(alias="from", ge=0, le=2**62)] = 0,
) -> Response:
    """The next occurrence of a text in the log; with error=1 or without a text, the next line that
    reports an error."""
    text = None if error or not q else q
    found = await web_of(request).threads.read(
        lambda queue: log_view.search(log_view.log_of_job(queue, id, attempt, stream), text, from_)
    )
    return json_response(request, found)


@router.get("/jobs/{id}/curve", response_model=models.PointsAnswer)
async def curve(
    request: Request,
    id: JobId,
    metric: Annotated[str, Query(max_length=1000)],
    points: Points = 500,
) -> Response:
    """The curve of one metric as a list of [step, value]."""
    web = web_of(request)

    def read(queue) -> list[object]:  # type: ignore[no-untyped-def]
        row = job_queries.job(queue.db, id)
        if metric not in web.reports.metrics(row):
            return []
        return web.reports.curve(source_of_job(row), metric, points)

    return json_response(request, {"points": await web.threads.read(read)})


@router.get("/jobs/{id}/trace", response_model=models.TraceAnswer)
async def job_trace(request: Request, id: JobId, points: Points = 300) -> Response:
    """CPU, memory and GPU use of a job over time."""

    def read(queue) -> dict[str, dict[str, object]]:  # type: ignore[no-untyped-def]
        job_queries.job(queue.db, id)
        return series_json(job_trace_of(queue.settings.state_dir, id, points))

    return json_response(request, {"series": await web_of(request).threads.read(read)})


@router.get("/gpus/history", response_model=models.GpuHistoryAnswer)
async def gpu_history(
    request: Request, hours: Annotated[float, Query(gt=0, le=24 * 366)] = 24.0
) -> Response:
    """What each GPU did, and why it was idle while jobs waited."""

    def read(queue) -> dict[str, object]:  # type: ignore[no-untyped-def]
        return history_json(queue.db, queue.settings, hours * 3600)

    return json_response(request, await web_of(request).threads.read(read))


@router.get("/gpus/{uuid:path}/trace", response_model=models.TraceAnswer)
async def gpu_trace(
    request: Request,
    uuid: Annotated[str, Path(max_length=200)],
    hours: Annotated[float, Query(gt=0, le=24 * 366)] = 6.0,
    points: Points = 300,
) -> Response:
    """Utilization, memory, power and temperature of a GPU over time."""

    def read(queue) -> dict[str, dict[str, object]]:  # type: ignore[no-untyped-def]
        actions.check_gpu(queue, uuid)
        since = time.time() - hours * 3600
        return series_json(gpu_trace_of(queue.settings.state_dir, uuid, since, points))

    return json_response(request, {"series": await web_of(request).threads.read(read)})


SweepName = Annotated[str, Path(max_length=200)]


@router.get("/sweeps", response_model=models.SweepsAnswer)
async def sweeps(request: Request) -> Response:
    """The newest two hundred sweeps."""
    web = web_of(request)
    found = await web.threads.read(lambda queue: web.sweeps.listed(queue.db))
    return json_response(request, {"sweeps": found})


@router.get("/sweeps/{name}", response_model=models.SweepAnswer)
async def sweep(request: Request, name: SweepName) -> Response:
    """One sweep with its parameters and counts."""
    web = web_of(request)
    return json_response(
        request, await web.threads.read(lambda queue: web.sweeps.in_full(queue.db, name))
    )


@router.get("/sweeps/{name}/form", response_model=models.SweepFormAnswer)
async def sweep_form(request: Request, name: SweepName) -> Response:
    """The definition of a sweep as the fields of a form, without its environment."""
    found = await web_of(request).threads.read(lambda queue: form_of_sweep(queue, name))
    return json_response(request, found)


@router.get("/sweeps/{name}/results", response_model=models.ResultsAnswer)
async def results(
    request: Request,
    name: SweepName,
    sort: Short = None,
    where: Short = None,
    limit: Annotated[int, Query(ge=1, le=5000)] = 500,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    column: Annotated[list[str] | None, Query(max_length=200)] = None,
) -> Response:
    """One row per trial, as in `stoker results`. `column`: further columns, e.g. `result`."""
    web = web_of(request)
    found = await web.threads.read(
        lambda queue: web.sweeps.results(queue.db, name, sort, where, limit, offset, column or ())
    )
    return json_response(request, found)


@router.get("/sweeps/{name}/importance", response_model=models.ImportanceAnswer)
async def importance(request: Request, name: SweepName, metric: Short = None) -> Response:
    """How strongly each parameter influences a metric, estimated from the trials so far."""
    web = web_of(request)
    found = await web.threads.read(lambda queue: web.sweeps.importance(queue.db, name, metric))
    return json_response(request, found)


@router.get("/sweeps/{name}/curves", response_model=models.CurvesAnswer)
async def curves(
    request: Request,
    name: SweepName,
    metric: Short = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    points: Points = 200,
) -> Response:
    """Learning curves of the best trials."""
    web = web_of(request)
    found = await web.threads.read(
        lambda queue: web.sweeps.curves(queue.db, name, metric, limit, points)
    )
    return json_response(request, found)


@router.get("/folders", response_model=models.FoldersAnswer)
async def folders(request: Request) -> Response:
    """The working directories of the newest jobs."""
    found = await web_of(request).threads.read(lambda queue: _recent_folders(queue.db))
    return json_response(request, {"folders": found})


def _recent_folders(db: Database) -> list[str]:
    """Return the working directories of the newest jobs without duplicates, newest first.

    A job that runs in a snapshot has the folder from which it was submitted.
    """
    rows = job_queries.jobs_in_states(db, STATES, _FOLDER_JOBS, newest_first=True)
    return list(dict.fromkeys(row.cwd for row in rows))[:_MAX_FOLDERS]
