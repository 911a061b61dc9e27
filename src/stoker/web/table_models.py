"""The fields of responses about tables of jobs and trials."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from stoker.web.models import Answer, Job


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
