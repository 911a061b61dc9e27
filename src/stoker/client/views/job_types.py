"""The JSON of jobs: the views return it, and the web API documents it with these types.

Type checkers compare the views with them; at run time, only the web server imports this module and
makes its models of them (web/typed_models.py). The text beside a type describes the field. Settings
of jobs are missing here: JobSettings has their names and types.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict


class GpuRef(TypedDict):
    index: int
    uuid: str


class Dependency(TypedDict):
    job: int
    condition: str
    met: bool


class ShortNote(TypedDict):
    starred: bool
    note_line: Annotated[str | None, "first line of its note, at most 120 characters"]


class InSweep(TypedDict):
    sweep: str | None
    trial: int | None


class Environment(TypedDict):
    conda: Annotated[str | None, "prefix of its conda environment"]
    venv: str | None
    uv: Annotated[bool, "whether it runs in the environment of its uv project"]
    module: Annotated[list[str], "environment modules, in the order of loading"]
    container: Annotated[str | None, "image of its container"]
    mount: Annotated[list[str], "mounts of its container: SRC:DST or SRC:DST:ro"]


class Settings(Environment):
    """What is not as in JobSettings."""

    notify: Annotated[list[str], "its notifications, each as WHEN:WHERE"]


class Requested(TypedDict):
    gpus: int
    gpu_mem_bytes: int | None
    gpu_mem_auto: bool
    gpu_ids: list[str]
    prefer: list[str]
    gpu_model: str | None
    min_gpu_mem_bytes: int | None
    exclusive: bool
    share: Annotated[str | None, "mps, mps:PERCENT or time; null: as the GPU is set up"]
    cpus: Annotated[int | None, "cores that it requests; null: the default"]
    mem_bytes: Annotated[int | None, "memory of the host that it requests"]
    mem_auto: bool
    need: Annotated[dict[str, int], "the amount of each counter that it requests"]
    on: Annotated[str, "the backend; `local` is this host"]
    nodes: int
    option: Annotated[list[str], "options for the engine of the backend, each as K=V"]
    preemptible: bool


class EngineJob(Requested, Settings):
    """Without the fields that features add."""

    id: int
    name: str | None
    state: str
    cause: str | None
    exit_code: int | None
    signal: int | None
    detail: str | None
    result: Annotated[str, "why it failed, was cancelled or was lost; else empty"]
    command: str
    argv: list[str]
    shell: bool
    cwd: str
    under_mps: Annotated[bool, "whether its last attempt runs under NVIDIA's MPS"]
    progress: Annotated[str | None, "what it reports: progress and its newest metric"]
    reserves: Annotated[str, "cores, memory and counters in words; empty: the defaults"]
    claim_bytes: int | None
    claim_cpus: Annotated[float | None, "cores that its attempt reserved"]
    claim_mem_bytes: Annotated[int | None, "memory that its attempt reserved"]
    gpu_memory_peak_bytes: int | None
    gpu_use_percent: float | None
    gpu_energy_joules: float | None
    node: Annotated[str | None, "the first node of a job on a backend"]
    node_gpus: Annotated[str | None, "its GPUs there, e.g. `0,1`"]
    place: Annotated[str, "the GPU column of `stoker ls`: `0,1` or `lab n2:0,1`"]
    devices: list[GpuRef]
    priority: int
    tags: list[str]
    group: str | None
    after: list[Dependency]
    attempts: int
    snapshot: Annotated[str | None, "the copy of its code in which it runs"]
    snapshot_dir: Annotated[str | None, "its folder in that copy; `cwd` is the original"]
    preemptions: Annotated[int, "how often it gave way to another job"]
    gives_way_to: Annotated[str | None, "what it is asked to make room for: `job 25`"]
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
    array: int | None
    array_index: int | None
    rerun_of: int | None
    dedupe: str | None


class Job(ShortNote, InSweep, EngineJob):
    """As in `stoker ls --json`."""


class Code(TypedDict):
    """The code in the folder of a job when it was submitted."""

    root: Annotated[str, "the folder of the git work tree"]
    commit: Annotated[str | None, "null: there was no commit yet"]
    branch: Annotated[str | None, "null: HEAD was detached"]
    dirty: Annotated[bool | None, "whether tracked files differed from the commit; null: not known"]
    diff_bytes: int
    problem: Annotated[str | None, "why the diff is not known or was not kept"]
    summary: Annotated[str, "all this in words"]


class Machine(TypedDict):
    """Where an attempt ran, and with which versions."""

    host: str
    python: str
    python_of: Annotated[Literal["job", "stoker"], "whose version of Python it is"]
    stoker: str
    driver: Annotated[str | None, "version of the NVIDIA driver"]
    gpu_model: str | None
    summary: Annotated[str, "all this in words"]


class Attempt(TypedDict):
    number: int
    devices: list[int]
    node: str | None
    node_gpus: str | None
    started_at: str | None
    ended_at: str | None
    status: int | None
    cause: str | None
    detail: str | None
    result: Annotated[str, "how it ended; empty while it runs"]
    machine: Annotated[Machine | None, "null for attempts on a backend"]


class JobEvent(TypedDict):
    at: str | None
    kind: str
    data: str | None


class StoredJob(Job):
    """As in `stoker show --json`, with more fields."""

    note: str
    note_revision: Annotated[int, "the number of changes"]
    note_changed_at: str | None
    previous_note: Annotated[str, "the note before the last edit"]
    output_dir: Annotated[str, "$STOKER_OUTPUT_DIR; it may not exist"]
    checkpoint_dir: Annotated[str, "$STOKER_CHECKPOINT_DIR; it may not exist"]
    code: Annotated[Code | None, "null: its folder was in no git repository"]
    history: list[Attempt]
    events: list[JobEvent]
