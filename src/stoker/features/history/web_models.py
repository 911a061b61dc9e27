"""The answer of the timeline."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from stoker.web.models import Answer, GpuHistory


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
