"""The route of the timeline: what every GPU did and likely does."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from stoker.client.queue import Queue
from stoker.features.history.timeline import timeline_json
from stoker.web.context import web_of
from stoker.web.models import Answer, GpuHistory
from stoker.web.responses import json_response
from stoker.web.routes_read import ERRORS


class TimelineBlock(BaseModel):
    """What a GPU did, or likely does, without a change."""

    from_: float = Field(alias="from", description="seconds since 1970")
    to: float
    kind: Literal["busy", "others", "idle", "waiting", "drained", "off", "unknown", "mixed"] = (
        Field(description="mixed: several short blocks; waiting: no job ran although jobs waited")
    )
    lane: int = Field(description="from the top; jobs that share a GPU have a lane each")
    lanes: int
    job: int | None = Field(description="null: several short jobs, or no job")
    about: int | None = Field(description="the job that the reason names")
    jobs: list[int] = Field(description="the first of several short jobs")
    count: int = Field(description="the number of short jobs")
    words: str = Field(description="what happened, and the reason if no job ran")
    forecast: bool
    end_known: bool


class TimelineGpu(GpuHistory):
    """The sums of the past, as in `stoker gpus --history --json`, and the blocks."""

    visible: str
    simulated: bool
    busy_seconds: float
    other_users_seconds: float
    idle_seconds: float
    idle_with_jobs_waiting_seconds: float
    not_running_seconds: float
    unknown_seconds: float
    blocks: list[TimelineBlock]


class TimelineJob(BaseModel):
    title: str = Field(description="the name of the job, or its command")
    state: str


class TimelineForecast(BaseModel):
    words: str = Field(description="why there is no forecast; empty if there is one")


class TimelineAnswer(Answer):
    from_: float = Field(alias="from")
    to: float
    now: float = Field(description="later blocks are forecasts")
    step: float = Field(description="blocks that are shorter, in seconds, are merged")
    gpus: list[TimelineGpu]
    left_off: int = Field(description="GPUs that are not in the answer")
    jobs: dict[str, TimelineJob] = Field(description="by id; jobs that were removed are missing")
    forecast: TimelineForecast


router = APIRouter(prefix="/api", responses=ERRORS, tags=["read"])

_HOUR = 3600.0
From = Annotated[float | None, Query(alias="from", ge=0, le=1e11)]
To = Annotated[float | None, Query(ge=0, le=1e11)]


@router.get("/timeline", response_model=TimelineAnswer)
async def timeline(request: Request, from_: From = None, to: To = None) -> Response:
    """What every GPU did from `from` to `to`, in seconds since 1970, and the forecast after now.

    Without them, the last 24 hours and the next 6. The sums of the past are those of
    `stoker gpus --history`; the number of blocks is limited by merging short ones.
    """
    now = time.time()
    until = now + 6 * _HOUR if to is None else to
    since = min(now, until) - 24 * _HOUR if from_ is None else from_
    web = web_of(request)

    def read(queue: Queue) -> dict[str, object]:
        return timeline_json(queue.db, queue.settings, since, until)

    # Ranges that end now move with every request; a few seconds make no difference.
    key = (round(since / 5), round(until / 5))
    found = await web.threads.read(lambda queue: web.timelines.get(key, lambda: read(queue)))
    return json_response(request, found)
