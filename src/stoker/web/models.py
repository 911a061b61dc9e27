"""The shapes of requests and answers, for checking the former and describing the latter.

Names are those of `stoker ... --json` and of the Python API. What a job may ask for is checked by
`stoker.client.job_options`, for all doors alike; the types here only keep nonsense away from it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

JobId = Annotated[int, Field(ge=1, le=2**62)]
Whole = Annotated[int, Field(ge=-(10**9), le=10**9)]
Count = Annotated[int, Field(ge=0, le=10**9)]
Name = Annotated[str, Field(min_length=1, max_length=1000)]
Seconds = str | float
Size = str | int


class Form(BaseModel):
    """A request; a key that nobody knows is a mistake of its sender."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


# -- requests -------------------------------------------------------------------------------------


class Login(Form):
    token: str = Field(max_length=4096, description="from the link that `stoker web` prints")


class JobOptions(Form):
    """What a job may ask for, as in the Python API."""

    cwd: str | None = Field(None, description="default: your home folder")
    env: dict[str, str | int | float | bool] | None = None
    gpus: Count | None = Field(None, description="default: 1 where there are any")
    gpu_mem: Size | None = Field(None, description="of each card, shared: 20G, bytes, auto")
    gpu_ids: list[str | int] | str | None = None
    prefer: list[str | int] | str | None = None
    gpu_model: str | None = None
    min_gpu_mem: Size | None = None
    exclusive: bool | None = None
    on_oom: str | None = Field(None, description="bigger, elsewhere, alone or fail")
    priority: Whole | None = None
    time_limit: Seconds | None = Field(None, description="seconds, or text: 90m, 2h")
    signal: str | None = Field(None, description="before the time limit: USR1@60")
    grace: Seconds | None = None
    retries: Count | None = None
    restartable: bool | None = None
    tags: list[str] | str | None = None
    hold: bool | None = None
    keep_children: bool | None = None


class SingleOptions(JobOptions):
    """And what only single jobs may."""

    name: str | None = None
    after: list[str | int] | str | int | None = Field(None, description="ids, or 7:any")
    begin: str | float | None = Field(None, description="+2h, 2026-12-24T18:00, or epoch seconds")
    group: str | None = Field(None, description="fair-share group")
    stdout: str | None = Field(None, description="relative to cwd")
    stderr: str | None = Field(None, description="relative to cwd")
    dedupe: str | None = None


class NewJob(SingleOptions):
    command: str | None = Field(None, description="shell text; or argv")
    argv: list[str] | None = None
    based_on: JobId | None = Field(
        None,
        description="a job whose environment, folder (unless given) and hidden options it takes",
    )
    dry_run: bool = False


class NewBatch(SingleOptions):
    text: str = Field(description="one job a line, or name ;; outfile ;; command ;;; ...")
    format: Literal["auto", "lines", "gpupeasy"] = "auto"
    dry_run: bool = False


class NewSweep(Form):
    command: str | None = Field(None, description="shell text with {name}s in it; or argv")
    argv: list[str] | None = None
    parameters: dict[str, Any] = Field(
        description="name: values, or text as on the command line: 0.1,0.01 or log(1e-5,1e-1)"
    )
    method: str | None = None
    trials: Count | None = None
    seed: Whole | None = None
    metric: str | dict[str, Any] | None = Field(None, description="val_loss, acc:max")
    early_stop: str | dict[str, Any] | None = None
    max_parallel: Count | None = None
    max_fails: Count | None = None
    same_fails: Count | None = None
    lenient: bool = False
    name: str | None = None
    options: JobOptions | None = None
    dry_run: bool = False


class JobsAct(Form):
    action: Literal["cancel", "hold", "release", "rerun", "rm", "priority", "move_first"]
    ids: list[JobId] = Field(min_length=1, max_length=10_000)
    grace: Annotated[float, Field(ge=0, le=1e9)] | None = None
    priority: Whole | None = None


class JobPatch(Form):
    command: str | None = None
    name: str | None = None
    gpus: Count | None = None
    priority: Whole | None = None
    time_limit: Seconds | None = Field(None, description="0: none")
    retries: Count | None = None


class SweepAct(Form):
    action: Literal["stop", "resume", "rerun_failed", "extend", "rm"]
    kill: bool = False
    trials: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    jobs: bool = Field(False, description="rm: with its jobs and their logs")


class GpuAct(Form):
    action: Literal["drain", "restore", "slots"]
    slots: Annotated[int, Field(ge=1, le=64)] | None = None


class DaemonAct(Form):
    action: Literal["drain", "resume", "start"]


# -- answers --------------------------------------------------------------------------------------


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow")

    schema_: Literal[1] = Field(alias="schema")


class ErrorText(BaseModel):
    code: str
    message: str
    hint: str | None
    field: str | None = Field(None, description="of the form, where one is to blame")


class ErrorAnswer(Answer):
    error: ErrorText


class CardRef(BaseModel):
    index: int
    uuid: str


class Dependency(BaseModel):
    job: int
    condition: str
    met: bool


class Job(BaseModel):
    """As in `stoker ls --json`."""

    model_config = ConfigDict(extra="forbid")

    id: int
    name: str | None
    state: str
    cause: str | None
    exit_code: int | None
    signal: int | None
    detail: str | None
    command: str
    argv: list[str]
    shell: bool
    cwd: str
    gpus: int
    gpu_mem_bytes: int | None
    gpu_mem_auto: bool
    gpu_ids: list[str]
    prefer: list[str]
    gpu_model: str | None
    min_gpu_mem_bytes: int | None
    exclusive: bool
    on_oom: str | None
    claim_bytes: int | None
    gpu_memory_peak_bytes: int | None
    gpu_use_percent: float | None
    gpu_energy_joules: float | None
    devices: list[CardRef]
    priority: int
    tags: list[str]
    group: str | None
    after: list[Dependency]
    attempts: int
    retries: int
    restartable: bool
    time_limit: float | None
    submitted_at: str | None
    eligible_at: str | None
    started_at: str | None
    ended_at: str | None
    stop_requested: bool
    pid: int | None
    user_seconds: float | None
    system_seconds: float | None
    max_rss_bytes: int | None
    stdout: str | None
    stderr: str | None
    batch: int | None
    batch_index: int | None
    rerun_of: int | None
    dedupe: str | None
    sweep: str | None
    trial: int | None


class WaitingJob(Job):
    why: str
    starts_in: float | None
    in_line: bool = Field(description="it waits for nothing but devices: its place is an order")


class Attempt(BaseModel):
    number: int
    devices: list[int]
    started_at: str | None
    ended_at: str | None
    status: int | None
    cause: str | None
    detail: str | None


class JobEvent(BaseModel):
    at: str | None
    kind: str
    data: str | None


class Metric(BaseModel):
    last: Any
    min: float | None
    max: float | None
    n: int
    step: float | None


class JobInFull(Job):
    """As in `stoker show --json`, and more."""

    history: list[Attempt]
    events: list[JobEvent]
    why: list[str]
    in_line: bool
    params: dict[str, Any]
    metrics: dict[str, Metric]


class JobAnswer(Answer):
    job: JobInFull


class JobsAnswer(Answer):
    jobs: list[Job]
    next: int | None = Field(description="`before` of the next page; null at the end")


class Gpu(BaseModel):
    """As in `stoker gpus --json`."""

    model_config = ConfigDict(extra="allow")

    index: int
    uuid: str
    state: str
    jobs: list[dict[str, Any]]
    strangers: list[dict[str, Any]]


class DaemonState(BaseModel):
    pid: int | None
    draining: bool


class MetricGoal(BaseModel):
    name: str
    goal: str


class Best(BaseModel):
    trial: int
    value: float | None
    params: dict[str, Any]


class SweepSummary(BaseModel):
    name: str
    state: str
    trials: dict[str, int]
    total: int
    method: str
    metric: MetricGoal | None
    command: str
    best: Best | None
    stopped: str | None


class Overview(Answer):
    now: str
    event_id: int
    read_only: bool
    user: str
    host: str
    daemon: DaemonState
    gpus: list[Gpu]
    trouble: str | None
    running: list[Job]
    queue: list[WaitingJob]
    recent: list[Job]
    counts: dict[str, int]
    sweeps: list[SweepSummary]


class SweepsAnswer(Answer):
    sweeps: list[SweepSummary]


class Param(BaseModel):
    name: str
    kind: str
    values: list[Any] | None = None


class SweepAnswer(Answer):
    name: str
    state: str
    trials: dict[str, int]
    spec: dict[str, Any]
    params: list[Param]
    missing: int = Field(description="trials that `resume` would run")


class ResultsAnswer(Answer):
    columns: list[str]
    rows: list[dict[str, Any]]
    total: int
    metric: MetricGoal | None


class Curve(BaseModel):
    trial: int | None
    job: int | None
    params: dict[str, Any]
    best: float | None
    points: list[list[float | None]]


class CurvesAnswer(Answer):
    metric: MetricGoal | None
    curves: list[Curve]


class Influence(BaseModel):
    name: str
    score: float = Field(description="how much of the order of the trials it explains, 0 to 1")
    direction: int = Field(description="1: the metric rises with it, -1: it falls, 0: neither")
    n: int


class ImportanceAnswer(Answer):
    metric: str | None
    importance: list[Influence]


class PointsAnswer(Answer):
    points: list[list[float | None]]


class Series(BaseModel):
    unit: str
    points: list[list[float | None]]


class TraceAnswer(Answer):
    series: dict[str, Series]


class LogAnswer(Answer):
    attempt: int
    size: int
    from_: int = Field(alias="from")
    to: int
    text: str
    is_over: bool


class FoundAnswer(Answer):
    at: int | None = Field(description="the byte where it begins")
    searched_to: int = Field(description="where to go on when nothing was found before `size`")
    size: int
    nth: int | None = Field(description="which of `total` this is; null in a large log")
    total: int | None


class SubmitAnswer(Answer):
    jobs: list[int] = []
    warning: str | None = None


class SweepStarted(Answer):
    sweep: str | None = None


class Changed(Answer):
    changed: int


class Health(BaseModel):
    ok: bool
