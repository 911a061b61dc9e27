"""Questions: what is, what was, what was said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from stoker.client.reports import Source
from stoker.errors import NotFound
from stoker.store import job_queries
from stoker.web import actions, job_view, log_view, models, usage
from stoker.web.context import guard_request_of, web_of
from stoker.web.metric_cache import MOST_POINTS
from stoker.web.models import ErrorAnswer
from stoker.web.responses import json_response
from stoker.web.sse import Stream

ERRORS: dict[int | str, dict[str, object]] = {
    status: {"model": ErrorAnswer, "description": text}
    for status, text in (
        (400, "the request makes no sense"),
        (401, "no token, or a wrong one"),
        (403, "another host, site or user; or read-only"),
        (404, "there is no such thing"),
        (422, "no state of this host would let it run"),
        (503, "not now"),
    )
}
router = APIRouter(prefix="/api", responses=ERRORS, tags=["read"])

JobId = Annotated[int, Path(ge=1, le=2**62)]
Number = Annotated[int | None, Query(ge=0, le=2**62)]
Short = Annotated[str | None, Query(max_length=2000)]
Points = Annotated[int, Query(ge=4, le=MOST_POINTS)]
StreamName = Annotated[str, Query(pattern="^(stdout|stderr)$")]


@router.get("/overview", response_model=models.Overview)
async def overview(request: Request) -> Response:
    """All cards, what runs, the head of the queue, what ended last."""
    web = web_of(request)
    return json_response(request, await web.threads.read(web.hub.overview))


def _as(kind: str, text: str) -> dict[int | str, dict[str, object]]:
    return {200: {"content": {kind: {}}, "description": text}}


@router.get(
    "/events", response_class=Response, responses=_as("text/event-stream", "changes, for ever")
)
async def events(
    request: Request, after: Number = None,
    last_event_id: Annotated[str | None, Header(max_length=40)] = None,
) -> Response:  # fmt: skip
    """Server-sent events: `change`, and `reset` where the overview has to be fetched again."""
    known = after
    if last_event_id:
        known = int(last_event_id) if last_event_id.isdecimal() and last_event_id.isascii() else 0
    guard, asked = web_of(request).guard, guard_request_of(request)
    return Stream(web_of(request).hub, known, lambda: guard.is_still_allowed(asked))


@router.get("/jobs", response_model=models.JobsAnswer)
async def jobs(
    request: Request, state: Short = None, tag: Short = None, name: Short = None,
    sweep: Short = None, q: Short = None, before: Number = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:  # fmt: skip
    """Newest first. A page may be short and have a next one: filters look at so many jobs only."""
    found = await web_of(request).threads.read(
        lambda queue: job_view.page(
            queue, state=state, tag=tag, name=name, sweep=sweep, text=q, before=before, limit=limit
        )
    )
    return json_response(request, found)


@router.get("/jobs/{id}", response_model=models.JobAnswer)
async def job(request: Request, id: JobId) -> Response:
    """Everything about a job."""
    web = web_of(request)
    found = await web.threads.read(
        lambda queue: job_view.job_in_full(queue, job_queries.job(queue.db, id), web.reports)
    )
    return json_response(request, {"job": found})


@router.get("/jobs/{id}/log", response_model=models.LogAnswer)
async def log(
    request: Request, id: JobId, attempt: Number = None, stream: StreamName = "stdout",
    tail: Annotated[int, Query(ge=0, le=log_view.LARGEST_PART)] = 65536,
    from_: Annotated[int | None, Query(alias="from", ge=0, le=2**62)] = None, to: Number = None,
) -> Response:  # fmt: skip
    """The end of a log, or a range of its bytes (at most 1 MiB of them)."""
    found = await web_of(request).threads.read(
        lambda queue: log_view.part(log_view.of_job(queue, id, attempt, stream), from_, to, tail)
    )
    return json_response(request, found)


@router.get(
    "/jobs/{id}/log/download", response_class=Response, responses=_as("text/plain", "a file")
)
async def download(
    request: Request, id: JobId, attempt: Number = None, stream: StreamName = "stdout"
) -> Response:
    """The whole log as a file."""
    web = web_of(request)
    found = await web.threads.read(lambda queue: log_view.of_job(queue, id, attempt, stream))
    descriptor = await web.threads.read(lambda queue: log_view.open_log(found))
    if descriptor is None:
        raise NotFound(f"job {id} has no output yet")
    name = f"job-{id}-{found.attempt}.{'err' if stream == 'stderr' else 'log'}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    pieces = _pieces(log_view.whole(descriptor), request)
    return StreamingResponse(pieces, 200, headers, "text/plain")


async def _pieces(blocks: Iterator[bytes], request: Request) -> AsyncIterator[bytes]:
    desk = web_of(request).threads
    try:
        while (block := await desk.read(lambda queue: next(blocks, None))) is not None:
            yield block
    finally:
        blocks.close()  # type: ignore[attr-defined]


@router.get("/jobs/{id}/find", response_model=models.FoundAnswer)
async def find_in_log(
    request: Request, id: JobId, q: Annotated[str | None, Query(max_length=200)] = None,
    error: bool = False, attempt: Number = None, stream: StreamName = "stdout",
    from_: Annotated[int, Query(alias="from", ge=0, le=2**62)] = 0,
) -> Response:  # fmt: skip
    """Where a text stands next in the log, or (error=1, or no text) a line that tells of one."""
    wanted = None if error or not q else q
    found = await web_of(request).threads.read(
        lambda queue: log_view.search(log_view.of_job(queue, id, attempt, stream), wanted, from_)
    )
    return json_response(request, found)


@router.get("/jobs/{id}/curve", response_model=models.PointsAnswer)
async def curve(
    request: Request, id: JobId, metric: Annotated[str, Query(max_length=1000)],
    points: Points = 500,
) -> Response:  # fmt: skip
    """[step, value] of one metric."""
    web = web_of(request)

    def read(queue) -> list[object]:  # type: ignore[no-untyped-def]
        row = job_queries.job(queue.db, id)
        if metric not in web.reports.metrics(row):
            return []
        source = Source(row.id, row.attempts, row.stdout, False)
        return web.reports.curve(source, metric, points)

    return json_response(request, {"points": await web.threads.read(read)})


@router.get("/jobs/{id}/trace", response_model=models.TraceAnswer)
async def job_trace(request: Request, id: JobId, points: Points = 300) -> Response:
    """CPU, memory and GPU use of a job over time."""

    def read(queue) -> dict[str, dict[str, object]]:  # type: ignore[no-untyped-def]
        job_queries.job(queue.db, id)
        return usage.job_trace(queue.settings.state_dir, id, points)

    return json_response(request, {"series": await web_of(request).threads.read(read)})


@router.get("/gpus/{uuid:path}/trace", response_model=models.TraceAnswer)
async def gpu_trace(
    request: Request, uuid: Annotated[str, Path(max_length=200)],
    hours: Annotated[float, Query(gt=0, le=24 * 366)] = 6.0, points: Points = 300,
) -> Response:  # fmt: skip
    """Use, memory, power and temperature of a card over time."""

    def read(queue) -> dict[str, dict[str, object]]:  # type: ignore[no-untyped-def]
        actions.check_card(queue, uuid)
        return usage.gpu_trace(queue.settings.state_dir, uuid, hours, points)

    return json_response(request, {"series": await web_of(request).threads.read(read)})


SweepName = Annotated[str, Path(max_length=200)]


@router.get("/sweeps", response_model=models.SweepsAnswer)
async def sweeps(request: Request) -> Response:
    """The newest two hundred."""
    web = web_of(request)
    found = await web.threads.read(lambda queue: web.sweeps.listed(queue.db))
    return json_response(request, {"sweeps": found})


@router.get("/sweeps/{name}", response_model=models.SweepAnswer)
async def sweep(request: Request, name: SweepName) -> Response:
    web = web_of(request)
    return json_response(
        request, await web.threads.read(lambda queue: web.sweeps.in_full(queue.db, name))
    )


@router.get("/sweeps/{name}/results", response_model=models.ResultsAnswer)
async def results(
    request: Request, name: SweepName, sort: Short = None, where: Short = None,
    limit: Annotated[int, Query(ge=1, le=5000)] = 500,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> Response:  # fmt: skip
    """One row for each trial, as `stoker results` has them."""
    web = web_of(request)
    found = await web.threads.read(
        lambda queue: web.sweeps.results(queue.db, name, sort, where, limit, offset)
    )
    return json_response(request, found)


@router.get("/sweeps/{name}/importance", response_model=models.ImportanceAnswer)
async def importance(request: Request, name: SweepName, metric: Short = None) -> Response:
    """Which parameters matter to a metric, as far as the trials so far can tell."""
    web = web_of(request)
    found = await web.threads.read(lambda queue: web.sweeps.importance(queue.db, name, metric))
    return json_response(request, found)


@router.get("/sweeps/{name}/curves", response_model=models.CurvesAnswer)
async def curves(
    request: Request, name: SweepName, metric: Short = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50, points: Points = 200,
) -> Response:  # fmt: skip
    """Learning curves of the best trials."""
    web = web_of(request)
    found = await web.threads.read(
        lambda queue: web.sweeps.curves(queue.db, name, metric, limit, points)
    )
    return json_response(request, found)
