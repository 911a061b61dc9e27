"""The nouns of Stoker as plain, frozen records. Times are seconds; wall-clock ones end in `_at`."""

from __future__ import annotations

from stoker.core.record import Record


class Context(Record):
    """Where and with what a job was submitted; one record serves a whole batch."""

    cwd: str
    env: tuple[tuple[str, str], ...]
    umask: int
    shell: str


class Dependency(Record):
    """Wait for another job; `condition` is one of ok, any, notok."""

    job: int
    condition: str = "ok"


class JobSpec(Record):
    """What a user asked for. `argv` holds one word of shell text when `shell` is true."""

    argv: tuple[str, ...]
    context: Context
    shell: bool = True
    gpus: int = 0
    name: str | None = None
    priority: int = 0
    after: tuple[Dependency, ...] = ()
    time_limit: float | None = None
    grace: float | None = None
    retries: int = 0
    restartable: bool = False
    begin_at: float | None = None
    tags: tuple[str, ...] = ()
    stdout: str | None = None
    stderr: str | None = None
    held: bool = False
    dedupe: str | None = None
    keep_children: bool = False


class ReadyJob(Record):
    """A queued job that waits for nothing but devices, with all that its start needs."""

    id: int
    priority: int
    gpus: int
    time_limit: float | None
    argv: tuple[str, ...]
    shell: bool
    context: int
    name: str | None
    attempts: int
    grace: float | None
    stdout: str | None
    stderr: str | None
    keep_children: bool
    batch: int | None
    batch_index: int | None


class RunningJob(Record):
    """An attempt that holds devices. Monotonic seconds; `ends_by` is None when nobody knows."""

    id: int
    attempt: int
    gpus: int
    devices: tuple[int, ...]
    started: float
    ends_by: float | None = None


class Device(Record):
    """One GPU. `visible` is what goes into CUDA_VISIBLE_DEVICES; `slots` jobs may share it."""

    number: int
    visible: str
    slots: int = 1
    model: str = ""
    uuid: str = ""


class WaitingJob(Record):
    """All that the policy looks at in a ready job; a ReadyJob has it too."""

    id: int
    priority: int
    gpus: int
    time_limit: float | None = None


class Snapshot(Record):
    """Everything `decide` may look at. `waiting` holds the head of each group, never the table."""

    now: float
    devices: tuple[Device, ...]
    cpu_slots: int
    running: tuple[RunningJob, ...]
    waiting: tuple[WaitingJob | ReadyJob, ...]
    draining: bool = False


class Start(Record):
    """The policy's only decision about waiting jobs: start this one there, now."""

    job: int
    devices: tuple[int, ...]


class Reservation(Record):
    """Devices kept back for a job that needs more than are free; `at` None means no estimate."""

    job: int
    devices: tuple[int, ...]
    at: float | None


class Plan(Record):
    starts: tuple[Start, ...]
    reservation: Reservation | None
    waits: dict[int, str]


class Outcome(Record):
    """How an attempt ended, as the supervisor saw it."""

    attempt: int
    status: int | None
    ended_at: float
    reason: str | None = None
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    max_rss_bytes: int = 0
    detail: str | None = None
