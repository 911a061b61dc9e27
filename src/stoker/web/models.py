"""The fields of requests, which are validated, and of responses, which are documented.

The names are those of `stoker ... --json` and of the Python API. Job options are checked by
`stoker.client.submit.job_options`, as for all interfaces; the types here only reject wrong types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from stoker.client.views import job_types
from stoker.web.option_forms import Count, Form, JobOptions, SingleOptions, Whole
from stoker.web.typed_models import model_of

JobId = Annotated[int, Field(ge=1, le=2**62)]
Name = Annotated[str, Field(min_length=1, max_length=1000)]


# -- requests -------------------------------------------------------------------------------------


class Login(Form):
    token: str = Field(max_length=4096, description="from the link that `stoker web` prints")


class NewJob(SingleOptions):
    command: str | None = Field(None, description="shell command; alternative to argv")
    argv: list[str] | None = None
    based_on: JobId | None = Field(
        None,
        description="a job to copy the environment, folder (unless given) and hidden options from",
    )
    dry_run: bool = False


class NewBatch(SingleOptions):
    text: str = Field(description="one job per line")
    dry_run: bool = False


class NewSweep(Form):
    command: str | None = Field(
        None, description="shell command with placeholders such as {lr}; alternative to argv"
    )
    argv: list[str] | None = None
    parameters: dict[str, Any] = Field(
        description="values by name; text as on the command line: 0.1,0.01 or log(1e-5,1e-1)"
    )
    method: str | None = None
    trials: Count | None = None
    seed: Whole | None = None
    metric: str | dict[str, Any] | None = Field(None, description="val_loss, or acc:max")
    early_stop: str | dict[str, Any] | None = None
    max_parallel: Count | None = None
    max_fails: Count | None = None
    same_fails: Count | None = None
    lenient: bool = False
    name: str | None = None
    options: JobOptions | None = None
    based_on: str | None = Field(
        None,
        max_length=200,
        description="clone this sweep: its environment, and what the form does not set",
    )
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
    gpu_mem: str | int | None = Field(None, description="of each GPU: 20G, bytes or auto; 0: none")
    gpu_ids: list[str | int] | str | None = Field(None, description="empty: any GPU")
    gpu_model: str | None = Field(None, description="empty: any model")
    share: str | None = Field(None, description="mps, mps:PERCENT or time; empty: as set up")
    cpus: Count | None = Field(None, description="0: the default")
    mem: str | int | None = Field(None, description="of the host: 20G, bytes or auto; 0: none")
    priority: Whole | None = None
    time_limit: str | float | None = Field(None, description="0: no limit")
    retries: Count | None = None


class SweepAct(Form):
    action: Literal["stop", "resume", "rerun_failed", "extend", "add", "rm"]
    kill: bool = False
    trials: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    expected: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        None, description="for extend: refuse if the sweep has another number of trials by now"
    )
    parameters: dict[str, str] = Field(
        {}, description="for add: values by name, as on the command line: 0.1,0.01"
    )
    point: bool = Field(False, description="for add: these values are one point")
    jobs: bool = Field(False, description="for rm: also remove its jobs and their logs")
    dry_run: bool = Field(False, description="for add: return the commands of the new trials")


class GpuAct(Form):
    action: Literal["drain", "restore", "slots"]
    slots: Annotated[int, Field(ge=1, le=64)] | None = None


class DaemonAct(Form):
    action: Literal["drain", "resume", "start"]


# -- responses ------------------------------------------------------------------------------------


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow")

    schema_: Literal[2] = Field(alias="schema")


class ErrorText(BaseModel):
    code: str
    message: str
    hint: str | None
    field: str | None = Field(None, description="the field of the form that the error is about")
    at: list[int] | None = Field(
        None, description="the part of a filter that the error is about: start and end"
    )


class ErrorAnswer(Answer):
    error: ErrorText


if TYPE_CHECKING:

    class Job(BaseModel): ...

    class StoredJob(Job): ...

else:
    Job = model_of(job_types.Job)
    StoredJob = model_of(job_types.StoredJob)


class WaitingJob(Job):
    """A job that is held or queued, or submitted to a backend that has not started it."""

    why: str
    why_short: str = Field(description="the same in a few words, for lists")
    starts_in: float | None
    ready: bool = Field(
        description="it waits for GPUs or CPU slots of this host only, so its position is its rank"
    )


class Run(BaseModel):
    """Progress and usage of a running job."""

    work: str = Field(description="what it reports, e.g. `step 120/1000 (12%)`")
    metric: str = Field(description="the newest, e.g. `loss 0.31`")
    percent: float | None = Field(description="of its work; null: unknown")
    is_reported: bool = Field(description="`percent` is reported by the job, not estimated")
    ends_in: float | None = Field(description="seconds until it likely ends")
    ends_by_limit: bool = Field(description="`ends_in` is only the rest of its time limit")
    gpu_memory_bytes: int | None = Field(description="the most of the last ten minutes")
    gpu_memory_requested_bytes: int | None
    gpu_memory: str = Field(description="both in words; empty: not measured")
    warnings: list[str] = Field(description="far less or more used than requested, in words")


class RunningJob(Job):
    run: Run


class Metric(BaseModel):
    last: Any
    min: float | None
    max: float | None
    n: int
    step: float | None


class WhatIf(BaseModel):
    """A change that would start a waiting job now or much earlier, as in `stoker why --json`."""

    words: str = Field(description="e.g. `start now with 3 GPUs`")
    starts_in: float = Field(description="seconds; 0: now")
    command: str = Field(description="makes the change in a terminal")
    fields: dict[str, Any] = Field(description="the body of PATCH /api/jobs/{id} that makes it")


class JobInFull(StoredJob):
    """As in `stoker show --json`, with more fields."""

    why: list[str]
    run: Run | None = Field(description="null: it does not run")
    what_if: list[WhatIf] = Field(description="tried with the scheduling policy")
    ready: bool
    params: dict[str, Any]
    metrics: dict[str, Metric]


class JobAnswer(Answer):
    job: JobInFull


class DiffAnswer(Answer):
    diff: str | None = Field(description="as `git diff` prints it")
    problem: str | None = Field(description="why there is no diff")


class JobsAnswer(Answer):
    jobs: list[Job]
    next: int | None = Field(description="`before` for the next page; null on the last page")


class GpuJob(BaseModel):
    id: int
    claim_bytes: int | None
    memory_bytes: int | None


class OtherProcess(BaseModel):
    """A process on a GPU that Stoker did not start."""

    pid: int | None
    user: str | None
    memory_bytes: int | None
    compute: bool


class Mps(BaseModel):
    """NVIDIA's MPS on one GPU."""

    state: str = Field(description="starting, running, failed or stopped")
    reason: str | None = Field(description="why it failed; jobs then share by time slices")
    server: int = Field(description="PID; 0 if it does not run")
    deaths: int = Field(description="how often its processes died")


class Gpu(BaseModel):
    """As in `stoker gpus --json`."""

    model_config = ConfigDict(extra="allow")

    index: int
    uuid: str
    model: str | None
    slots: int
    share: str = Field(description="how jobs that do not say it share it: mps or time")
    mps: Mps | None = Field(description="null: this user does not use MPS there")
    state: str
    reserved_for: int | None = Field(description="the waiting job for which it is kept")
    numa_node: int | None
    near_cpus: str = Field(description="the CPUs near it, as 0-15,32-47; empty with one NUMA node")
    nvlink: list[str] = Field(description="UUIDs of the GPUs that NVLink connects with it")
    simulated: bool = Field(description="it has no measurements")
    memory_bytes: int | None
    memory_used_bytes: int | None
    utilisation_percent: int | None
    power_watts: float | None
    temperature_celsius: int | None
    jobs: list[GpuJob]
    other_processes: list[OtherProcess]


class Node(BaseModel):
    """A node of a backend, as last seen."""

    name: str
    gpus: int
    used_gpus: int = Field(description="by jobs of any user")
    state: str = Field(description="up, drained or down")
    model: str
    gpu_memory: int = Field(description="bytes of each GPU; 0: unknown")
    cpus: int
    note: str = Field(description="the engine's word for its state, if it is not up")


class Backend(BaseModel):
    """As in `stoker backend ls --json`."""

    name: str
    kind: str
    options: dict[str, str]
    folder: str | None
    problem: str | None = Field(description="why it cannot be used at the moment")
    summary: str = Field(description="number of nodes and GPUs")
    checked_at: str | None = Field(description="when its nodes were last seen")
    nodes: list[Node]


class DaemonState(BaseModel):
    pid: int | None
    draining: bool


class MetricGoal(BaseModel):
    name: str
    goal: str | None = Field(description="min or max; null: not known, so that no trial is best")


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
    starred: bool
    tags: list[str]
    note_line: str | None


class CounterUse(BaseModel):
    total: int
    reserved: int


class HostUse(BaseModel):
    """What the jobs of this host share besides GPUs, as in `stoker --json`."""

    cores: int | None
    cores_reserved: float
    memory_bytes: int | None
    memory_reserved_bytes: int
    counters: dict[str, CounterUse] = Field(description="by name, from the settings")
    words: str = Field(description="what is reserved, in words; empty if nothing is")


class Overview(Answer):
    now: str
    event_id: int
    read_only: bool
    user: str
    host: str
    daemon: DaemonState
    gpus: list[Gpu]
    gpu_error: str | None
    backends: list[Backend]
    resources: HostUse
    default_backend: str = Field(description="where jobs without `on` run; `local` is this host")
    running: list[RunningJob]
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


class SweepChoice(BaseModel):
    """An action on a sweep."""

    action: str
    problem: str | None = Field(description="why it is not possible; null: it is")
    effect: str = Field(description="what it does to this sweep")


class SweepAnswer(Answer):
    name: str
    state: str
    trials: dict[str, int]
    spec: dict[str, Any]
    params: list[Param]
    missing: int = Field(description="number of trials that `resume` would run")
    other_code: list[int] = Field(
        description="trials that ran with other code than the newest one; see the column `code`"
    )
    requested: int | None = Field(description="number of trials; null: every point, or no limit")
    actions: list[SweepChoice]
    note: str
    note_revision: int = Field(description="the number of changes")
    previous_note: str = Field(description="the note before the last edit")


class ResultsAnswer(Answer):
    columns: list[str]
    rows: list[dict[str, Any]]
    total: int
    metric: MetricGoal | None


class Curve(BaseModel):
    trial: int | None
    job: int | None
    params: dict[str, Any]
    result: float | None = Field(description="the last value, by which trials are ranked")
    points: list[list[float | None]]


class CurvesAnswer(Answer):
    metric: MetricGoal | None
    curves: list[Curve]


class Influence(BaseModel):
    name: str
    score: float = Field(description="how well it predicts the ranking of the trials, from 0 to 1")
    direction: int = Field(description="1: the metric rises with it; -1: it falls; 0: neither")
    n: int
    method: str = Field(description="how the score was computed")


class ImportanceAnswer(Answer):
    metric: str | None
    importance: list[Influence]
    explanation: str = Field(description="one sentence; empty if there are too few trials")


class PointsAnswer(Answer):
    points: list[list[float | None]]


class Series(BaseModel):
    unit: str
    points: list[list[float | None]]


class TraceAnswer(Answer):
    series: dict[str, Series]


class IdleReason(BaseModel):
    reason: str = Field(description="why no job ran, e.g. `reserved for job 25`")
    seconds: float


class GpuShares(BaseModel):
    """Parts of the recorded time, as `81%`; `-` if nothing is recorded."""

    busy: str
    other_users: str
    no_work: str
    jobs_waited: str
    not_running: str


class GpuHistory(BaseModel):
    """What a GPU did, as in `stoker gpus --history 24h --json`."""

    model_config = ConfigDict(extra="allow")

    index: int | None = Field(description="null: this host does not have the GPU any more")
    uuid: str
    jobs: int
    shares: GpuShares
    reasons: list[IdleReason]


class GpuHistoryAnswer(Answer):
    since: str
    seconds: float
    gpus: list[GpuHistory]


class LogSpan(BaseModel):
    """Text in one style, without control characters."""

    text: str
    classes: str | None = Field(
        None,
        description="of bold, faint, slant, under, inverse, f0-f15 (text), g0-g15 (background)",
    )
    color: str | None = Field(None, description="of the text, if it is none of f0-f15: rgb(1 2 3)")
    background: str | None = None


class LogLine(BaseModel):
    at: int = Field(description="byte offset of its start")
    spans: list[LogSpan]


class LogAnswer(Answer):
    attempt: int
    size: int
    start: int = Field(description="byte offset at which the rendering started")
    from_: int = Field(
        alias="from",
        description="byte offset of the first line; `lines` replace known lines at or after it",
    )
    to: int
    lines: list[LogLine]
    match: int | None = Field(description="`at` of the line that contains the requested match")
    is_over: bool


class FoundAnswer(Answer):
    at: int | None = Field(description="byte offset of the match")
    searched_to: int = Field(description="where to continue when nothing was found before `size`")
    size: int
    nth: int | None = Field(description="number of this match among `total`; null in a large log")
    total: int | None


class SubmitAnswer(Answer):
    jobs: list[int] = []
    warning: str | None = None


class SweepStarted(Answer):
    sweep: str | None = None


class SweepParameter(BaseModel):
    name: str = Field(description="`lr`, or `lr,bs` for parameters that have values together")
    text: str = Field(description="its values as on the command line")
    when: str | None = Field(description="the condition under which it is used")


class SweepFormAnswer(Answer):
    """A sweep as the fields of a form, for a clone."""

    command: str
    argv: list[str] | None = Field(description="the command if it is not shell text")
    parameters: list[SweepParameter]
    method: str
    trials: int | None
    seed: int | None
    metric: str | None
    goal: str
    max_parallel: int | None
    name: str = Field(description="a free name")
    options: dict[str, Any]
    kept: list[str] = Field(description="what a clone keeps besides these fields, in words")


class Changed(Answer):
    changed: int


class Health(BaseModel):
    ok: bool


class FoldersAnswer(Answer):
    folders: list[str] = Field(description="of the newest jobs, newest first, without duplicates")
