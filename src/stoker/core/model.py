"""The nouns of Stoker as plain, frozen records. Times are seconds; wall-clock ones end in `_at`."""

from __future__ import annotations

from stoker.core.profiles.estimates import NO_ESTIMATES, Estimates
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


class Request(Record):
    """What a job asks of the GPUs. Jobs with equal requests wait in one line."""

    gpus: int = 0
    memory: int | None = None  # bytes of each card; None: a slot, which normally is a whole card
    exclusive: bool = False  # all of each card, however many slots it has
    ids: tuple[str, ...] = ()  # only these: indices or UUIDs
    prefer: tuple[str, ...] = ()
    model: str | None = None  # part of the model's name
    min_memory: int | None = None  # bytes a card must have
    is_auto: bool = False  # memory as learned from earlier runs; a slot until something is
    avoid: tuple[str, ...] = ()  # cards where it ran out of memory; not these if others would do


GROUP_PREFIX = "group:"  # of a fair-share group that a user named; sweeps have another one


class JobSpec(Record):
    """What a user asked for. `argv` holds one word of shell text when `shell` is true."""

    argv: tuple[str, ...]
    context: Context
    shell: bool = True
    request: Request = Request()
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
    on_oom: str | None = None  # bigger, elsewhere, alone or fail
    variables: tuple[tuple[str, str], ...] = ()  # its own, beside the context's
    warn: str | None = None  # a signal before its time limit, USR1@60
    sweep: int | None = None
    share: str = ""  # fair-share group; "" is the group of all jobs outside of sweeps


class ReadyJob(Record):
    """A queued job that waits for nothing but devices, with all that its start needs."""

    id: int
    priority: int
    request: Request
    time_limit: float | None
    share: str
    since: float
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
    family: int
    line: int
    retries: int
    restartable: bool
    on_oom: str | None
    variables: tuple[tuple[str, str], ...]
    warn: str | None
    sweep: int | None
    requeues: int


class RunningJob(Record):
    """An attempt that holds devices. Monotonic seconds; `ends_by` is None when nobody knows."""

    id: int
    attempt: int
    request: Request
    devices: tuple[int, ...]
    started: float
    ends_by: float | None = None  # by its time limit
    share: str = ""
    family: int = 0


class Device(Record):
    """One GPU. `visible` is what goes into CUDA_VISIBLE_DEVICES; `slots` jobs may share it."""

    number: int
    visible: str
    slots: int = 1
    model: str = ""
    uuid: str = ""
    memory: int = 0  # bytes that jobs can have; 0 when unknown
    pci: str = ""
    slice_of: str | None = None


class DeviceState(Record):
    """What holds for a device at the moment, beside our own jobs."""

    foreign: int = 0  # bytes that others use
    has_strangers: bool = False  # somebody else computes there
    closed: str | None = None  # why nothing may start there
    note: str | None = None  # who the strangers are, for people
    is_brief: bool = False  # closed for a moment only: reservations stay


class WaitingJob(Record):
    """All that the policy looks at in a ready job; a ReadyJob has it too."""

    id: int
    priority: int
    request: Request
    time_limit: float | None = None
    share: str = ""  # fair-share group: those that run least come first
    since: float = 0.0  # when it began to wait (monotonic)
    family: int = 0  # its command profile
    line: int = 0  # its request group; 0: one of its own


class Rules(Record):
    """How the policy orders what waits; `stoker simulate` compares them."""

    backfill: bool = True
    short_first: bool = True
    is_fair: bool = True
    patience: float = 7 * 86400.0  # who has waited longer is overtaken by nobody


class Snapshot(Record):
    """Everything `decide` may look at. `waiting` holds the head of each group, never the table."""

    now: float
    devices: tuple[Device, ...]
    cpu_slots: int
    running: tuple[RunningJob, ...]
    waiting: tuple[WaitingJob | ReadyJob, ...]
    draining: bool = False
    states: dict[int, DeviceState] | None = None  # by device; open and unshared where not said
    rules: Rules = Rules()
    limits: dict[str, int] | None = None  # how many of a share may run at a time
    estimates: Estimates = NO_ESTIMATES


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
    has_room: bool = False  # whether a device or a wanted CPU slot is left free


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
    last_words: str | None = None  # of its log, where no cause was found
