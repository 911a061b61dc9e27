"""The fields of the responses of routes_curves.py."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from stoker.web.models import Answer

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
