"""Routes of the tables of jobs and trials: pages, columns, completion, groups, exports."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from stoker.client.queue import Queue
from stoker.features.results.optional_imports import missing_parquet
from stoker.text.filters.filter_completion import Completion
from stoker.web.context import web_of
from stoker.web.job_table_view import JobsQuery
from stoker.web.models import Answer, Job
from stoker.web.responses import json_response
from stoker.web.routes_read import ERRORS, Number, Short, SweepName


class TableJob(Job):
    values: dict[str, Any] = Field(description="the values of the requested columns, by name")


class HistoryAnswer(Answer):
    jobs: list[TableJob]
    next: int | None = Field(
        description="`before` for the next page, or `offset` if the jobs are sorted by a column"
    )
    total: int = Field(description="number of matching jobs, counted up to 100,000")
    has_more: bool = Field(description="whether more jobs match than were counted")
    unread: int = Field(description="finished jobs whose metrics are not read yet; ask again")


class FailureGroup(BaseModel):
    """Jobs or trials that failed in the same way."""

    state: str
    result: str
    size: int = Field(description="number of them")
    job: int | None = Field(description="the newest of them")
    trial: int | None
    where: str = Field(description="the filter that selects them")


class FailuresAnswer(Answer):
    groups: list[FailureGroup]


class TableColumn(BaseModel):
    name: str
    kind: str = Field(description="job, param or metric")
    words: str = Field(description="what it is")
    is_number: bool


class ColumnsAnswer(Answer):
    columns: list[TableColumn]
    parquet: str | None = Field(description="why Parquet files cannot be written; null: they can")


class Suggestion(BaseModel):
    text: str
    note: str


class CompletionAnswer(Answer):
    start: int = Field(description="the first character that a suggestion replaces")
    end: int
    suggestions: list[Suggestion]


router = APIRouter(prefix="/api", responses=ERRORS, tags=["tables"])

ColumnNames = Annotated[
    list[Annotated[str, Query(max_length=1000)]] | None,
    Query(max_length=200, description="names of columns; repeat it for several"),
]
Typed = Annotated[str, Query(max_length=2000)]
Place = Annotated[int, Query(ge=0, le=2000)]
Offset = Annotated[int, Query(ge=0, le=10**9)]
Form = Annotated[Literal["csv", "json", "jsonl", "parquet"], Query(alias="format")]
_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "parquet": "application/vnd.apache.parquet",
}
_FILE: dict[int | str, dict[str, object]] = {
    200: {
        "content": {kind.partition(";")[0]: {} for kind in _TYPES.values()},
        "description": "a file",
    }
}


def _query(
    state: Short = None,
    tag: Short = None,
    name: Short = None,
    sweep: Short = None,
    on: Short = None,
    q: Short = None,
    where: Short = None,
    sort: Short = None,
    starred: bool = False,
) -> JobsQuery:
    return JobsQuery(state, tag, name, sweep, on, q, where, sort, starred)


JobsAsked = Annotated[JobsQuery, Depends(_query)]


@router.get("/history", response_model=HistoryAnswer)
async def history(
    request: Request,
    asked: JobsAsked,
    column: ColumnNames = None,
    before: Number = None,
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """Jobs that match a filter, sorted by any column; without an order, the newest first."""
    web = web_of(request)
    found = await web.threads.read(
        lambda queue: web.job_tables.page(queue, asked, column or [], before, offset, limit)
    )
    return json_response(request, found)


@router.get("/history/failures", response_model=FailuresAnswer)
async def history_failures(request: Request, asked: JobsAsked) -> Response:
    """Failed and lost jobs in groups that failed in the same way, the largest first."""
    web = web_of(request)
    found = await web.threads.read(lambda queue: web.job_tables.failures(queue, asked))
    return json_response(request, found)


@router.get("/history/columns", response_model=ColumnsAnswer)
async def history_columns(request: Request) -> Response:
    """The columns that filters, orders and exports of jobs can use."""
    web = web_of(request)

    def read(queue: Queue) -> dict[str, object]:
        columns = [one._asdict() for one in web.job_tables.columns(queue)]
        return {"columns": columns, "parquet": missing_parquet()}

    return json_response(request, await web.threads.read(read))


@router.get("/history/complete", response_model=CompletionAnswer)
async def history_complete(request: Request, text: Typed, at: Place) -> Response:
    """What can be typed at a place of a filter of jobs."""
    web = web_of(request)
    found = await web.threads.read(lambda queue: web.job_tables.complete(queue, text, at))
    return json_response(request, _completion(found))


@router.get("/history/export", response_class=Response, responses=_FILE)
async def history_export(
    request: Request, asked: JobsAsked, form: Form, column: ColumnNames = None
) -> Response:
    """The matching jobs as a file, in the order of the table, with these columns."""
    web = web_of(request)
    names = column or ["id", "state", "name", "command"]
    data = await web.threads.read(lambda queue: web.job_tables.export(queue, asked, names, form))
    return _file(data, "jobs", form)


@router.get("/sweeps/{name}/failures", response_model=FailuresAnswer)
async def sweep_failures(request: Request, name: SweepName, where: Short = None) -> Response:
    """Failed and lost trials in groups that failed in the same way, the largest first."""
    web = web_of(request)
    groups = await web.threads.read(lambda queue: web.sweeps.failures(queue.db, name, where))
    return json_response(request, {"groups": [one._asdict() for one in groups]})


@router.get("/sweeps/{name}/columns", response_model=ColumnsAnswer)
async def sweep_columns(request: Request, name: SweepName) -> Response:
    """The columns that filters, orders and exports of trials can use."""
    web = web_of(request)
    found = await web.threads.read(lambda queue: web.sweeps.table_columns(queue.db, name))
    columns = [one._asdict() for one in found]
    return json_response(request, {"columns": columns, "parquet": missing_parquet()})


@router.get("/sweeps/{name}/complete", response_model=CompletionAnswer)
async def sweep_complete(request: Request, name: SweepName, text: Typed, at: Place) -> Response:
    """What can be typed at a place of a filter of trials."""
    web = web_of(request)
    found = await web.threads.read(lambda queue: web.sweeps.complete(queue.db, name, text, at))
    return json_response(request, _completion(found))


@router.get("/sweeps/{name}/export", response_class=Response, responses=_FILE)
async def sweep_export(
    request: Request,
    name: SweepName,
    form: Form,
    where: Short = None,
    sort: Short = None,
    column: ColumnNames = None,
) -> Response:
    """The matching trials as a file, in the order of the table, with these columns."""
    web = web_of(request)
    data = await web.threads.read(
        lambda queue: web.sweeps.export(queue.db, name, sort, where, column, form)
    )
    return _file(data, name, form)


def _completion(found: Completion) -> dict[str, object]:
    return {
        "start": found.start,
        "end": found.end,
        "suggestions": [one._asdict() for one in found.suggestions],
    }


def _file(data: bytes, name: str, form: str) -> Response:
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "table"
    headers = {"Content-Disposition": f'attachment; filename="{safe[:100]}.{form}"'}
    return Response(data, 200, headers, _TYPES[form])
