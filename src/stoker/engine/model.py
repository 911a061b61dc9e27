"""The data model as immutable records. Times are seconds.

`profile` is the number of a command profile, `request_group` the number of a request group.
"""

from __future__ import annotations

from stoker.engine.job_settings import DEFAULT_SETTINGS, JobSettings
from stoker.engine.profiles.estimates import NO_ESTIMATES, Estimates
from stoker.record import Record


class Context(Record):
    """The environment in which jobs were submitted; the jobs of a batch share one."""

    cwd: str
    env: tuple[tuple[str, str], ...]
    umask: int
    shell: str


class Dependency(Record):
    """A job that has to finish first; `condition` is one of ok, any, notok."""

    job: int
    condition: str = "ok"


class AfterSelector(Record):
    """Jobs that have to finish first; the selector is resolved when the job is added."""

    text: str  # as in text/selectors.py: `@`, `train`, `3-9`, `7_3`
    condition: str = "ok"
    in_file: bool = False  # in a line of a job file: earlier lines of the file count too


class Request(Record):
    """What a job requests. Jobs with equal requests are in one request group."""

    gpus: int = 0
    memory: int | None = None  # bytes on each GPU; None: one slot, by default the whole GPU
    exclusive: bool = False  # the whole GPU, regardless of its number of slots
    ids: tuple[str, ...] = ()  # only these GPUs: indices or UUIDs
    prefer: tuple[str, ...] = ()
    model: str | None = None  # part of the model's name
    min_memory: int | None = None  # bytes that a GPU must have in total
    is_auto: bool = False  # memory from the command profile; a slot while there is no estimate
    avoid: tuple[str, ...] = ()  # GPUs where it ran out of memory; used only if no others qualify
    backend: str = ""  # where it runs; "": on this host
    nodes: int = 1  # the other values are for each node
    options: tuple[str, ...] = ()  # K=V for the engine of the backend
    cpus: int = 0  # cores; 0: the default share (engine/policy/host_share.py)
    host_memory: int | None = None  # bytes of the host's memory; None: not counted
    is_auto_host: bool = False  # host memory from the command profile
    needs: tuple[str, ...] = ()  # NAME=N of the counters in the settings, sorted
    share: str = ""  # how it shares a GPU: mps, mps:PERCENT or time; "": as the GPU is set up
    preemptible: bool = False  # gives way to jobs that are not
    array: int = 0  # of an array whose jobs are limited in number: its id
    profile: int = 0  # of the job, if `is_auto`; not part of its request group


LOCAL = "local"  # the backend that is this host
MPS, TIME = "mps", "time"  # how jobs share a GPU: engine/policy/share_mode.py
ARRAY_PREFIX = "array:"  # of arrays among the limits of running jobs
GROUP_PREFIX, SWEEP_PREFIX = "group:", "sweep:"  # of fair-share groups: named by users; of sweeps


class JobSpec(Record):
    """A job as submitted. If `shell` is true, `argv` holds one word: the shell command."""

    argv: tuple[str, ...]
    context: Context
    shell: bool = True
    request: Request = Request()
    name: str | None = None
    priority: int = 0
    after: tuple[Dependency | AfterSelector, ...] = ()
    time_limit: float | None = None
    begin_at: float | None = None
    tags: tuple[str, ...] = ()
    stdout: str | None = None
    stderr: str | None = None
    held: bool = False
    dedupe: str | None = None
    settings: JobSettings = DEFAULT_SETTINGS
    variables: tuple[tuple[str, str], ...] = ()  # of this job only, added to those of the context
    sweep: int | None = None
    fair_share_group: str = ""  # "" is the default group
    snapshot: str | None = None  # the copy of the code in which it runs, or one of WISHES in
    # engine/snapshot_context.py; None: it runs in its folder
    array_index: int | None = None
    array: str | None = None  # becomes one job for each of these indices: 0-99%8


class ReadyJob(Record):
    """A queued job that waits only for devices, with everything needed to start it."""

    id: int
    priority: int
    request: Request
    time_limit: float | None
    fair_share_group: str
    since: float
    argv: tuple[str, ...]
    shell: bool
    context: int
    name: str | None
    attempts: int
    stdout: str | None
    stderr: str | None
    settings: JobSettings
    batch: int | None
    batch_index: int | None
    profile: int
    request_group: int
    variables: tuple[tuple[str, str], ...]
    sweep: int | None
    requeues: int
    preemptions: int = 0
    kept: tuple[int, ...] = ()  # devices that preemptible jobs vacate for it
    snapshot: str | None = None
    array_index: int | None = None
    code: int | None = None  # the state of its code at submit


class RunningJob(Record):
    """An attempt that holds devices. Times are monotonic."""

    id: int
    attempt: int
    request: Request
    devices: tuple[int, ...]
    started: float
    ends_by: float | None = None  # end of its time limit; None if it has none
    fair_share_group: str = ""
    profile: int = 0
    cpus: float | None = None  # cores that it claimed; None: those of its request
    preemptions: int = 0  # earlier attempts of its job that gave way
    gives_way: bool = False  # it was asked to make room for another job
    share: str = ""  # mps: it runs under MPS


SIMULATED = "SIM-"  # the start of the UUIDs of simulated GPUs


class Device(Record):
    """One GPU. `visible` is what goes into CUDA_VISIBLE_DEVICES; `slots` jobs may share it."""

    number: int
    visible: str
    slots: int = 1
    model: str = ""
    uuid: str = ""
    memory: int = 0  # bytes available to jobs; 0 if unknown
    pci: str = ""
    slice_of: str | None = None
    numa: int | None = None  # its NUMA node
    cpus: str = ""  # the CPUs near it, as 0-15,32-47; empty on a host with one NUMA node
    share: str = ""  # how jobs that do not say it share it: mps or time
    links: tuple[str, ...] = ()  # UUIDs of the GPUs that NVLink connects with it


class DeviceState(Record):
    """The current state of a device, apart from Stoker's own jobs."""

    unreserved_bytes: int = 0  # bytes in use that no running job has reserved
    has_other_processes: bool = False  # processes that Stoker did not start compute there
    closed_reason: str | None = None  # why no job may start there
    note: str | None = None  # the other processes in words
    closes_briefly: bool = False  # closed only for a moment: reservations stay
    other_users: tuple[str, ...] = ()  # the users of the other processes
    takes_followers: bool = False  # jobs may start beside one whose memory is being measured
    is_saturated: bool = False  # one job alone uses all of its compute power
    mps_problem: str | None = None  # why jobs cannot use MPS there; they share by time slices
    mps_bytes: int = 0  # of `unreserved_bytes`: memory of our own MPS server
    mps_starts: bool = False  # MPS is being started there; jobs that use it wait for that
    other_user: str | None = None  # another user who computes there, so that MPS jobs have to wait


class WaitingJob(Record):
    """What the policy reads of a ready job. A ReadyJob has the same fields."""

    id: int
    priority: int
    request: Request
    time_limit: float | None = None
    fair_share_group: str = ""  # the group with the fewest GPUs in use comes first
    since: float = 0.0  # when it was submitted (monotonic)
    profile: int = 0
    request_group: int = 0  # 0: a request group of its own
    kept: tuple[int, ...] = ()  # devices that preemptible jobs vacate for it


class Rules(Record):
    """Options of the policy; `stoker simulate` compares them."""

    backfill: bool = True
    short_first: bool = True
    is_fair: bool = True
    patience: float = 7 * 86400.0  # seconds; jobs that waited longer are first come, first served


class HostResources(Record):
    """What jobs of a host share besides GPUs. None: not counted."""

    cores: int | None = None
    memory: int | None = None  # bytes
    counters: tuple[tuple[str, int], ...] = ()  # name and amount, from the settings


UNCOUNTED = HostResources()


class Snapshot(Record):
    """The input of `decide`. `waiting` holds the first jobs of each request group, not all."""

    now: float
    devices: tuple[Device, ...]
    cpu_slots: int
    running: tuple[RunningJob, ...]
    waiting: tuple[WaitingJob | ReadyJob, ...]
    draining: bool = False
    states: dict[int, DeviceState] | None = None  # by device; missing ones have no restrictions
    rules: Rules = Rules()
    limits: dict[str, int] | None = None  # most running jobs by fair-share group, or by array
    estimates: Estimates = NO_ESTIMATES
    resources: HostResources = UNCOUNTED


class Start(Record):
    """A decision of the policy: start this job on these devices now."""

    job: int
    devices: tuple[int, ...]


class Reservation(Record):
    """Devices or host room kept for a job that does not fit yet; `at` is None if unknown."""

    job: int
    devices: tuple[int, ...]
    at: float | None


class Plan(Record):
    """The result of `decide`: what starts now, and why each other job waits (by job id)."""

    starts: tuple[Start, ...]
    reservation: Reservation | None
    waits: dict[int, str]
    has_room: bool = False  # whether a device is free, or a CPU slot that a job wanted
    host_reservation: Reservation | None = None  # of cores, memory or counters; without devices


class Outcome(Record):
    """How an attempt ended, as reported by the supervisor."""

    attempt: int
    status: int | None
    ended_at: float
    reason: str | None = None  # the cause; messages of 0.1 between processes have this name
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    max_rss_bytes: int = 0
    detail: str | None = None
    last_error: str | None = None  # last error in its log, if no cause was found
    exception: str | None = None  # the Python exception that ended it, if no cause was found
    needed_gpu_memory: int | None = None  # bytes that its out-of-memory message asked for
    exceeds_gpus: bool = False  # no GPU of the host can hold what it asked for
    modules: str = ""  # what a warm start imported, by comma
    was_crowded: bool = False  # other jobs shared its GPU because of an estimate of its memory
    leftovers: str = ""  # processes that outlived its first process and were stopped
