"""Small changes of a waiting job that would let it start now, or much earlier.

Every change is tried with the policy before it is suggested: with `decide` for a start now, with
`forecast` for an earlier start. The number of tries is limited, so the cost is that of a few
decisions, however long the queue is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from stoker.engine.model import MPS, TIME, Request, Snapshot
from stoker.engine.policy.decide import AnyJob, decide, host_room_of, limit_waiting_jobs, pool_of
from stoker.engine.policy.eligible import is_eligible
from stoker.engine.policy.forecast import forecast_steps
from stoker.engine.policy.host_share import CORES, MEMORY, MILLI
from stoker.record import Record
from stoker.text.durations import format_duration
from stoker.text.plurals import plural
from stoker.text.sizes import format_size

_COUNTS = 4  # numbers of GPUs that are tried for a start now
_FORECASTS = 2  # changes whose start is forecast if no change starts the job now
_FORECAST_STEPS = 100
_FORECAST_JOBS = 2000  # waiting jobs; with more, a forecast takes too long
_MUCH = 0.5  # "much earlier": after at most this part of the time
_MUCH_SECONDS = 300.0  # and by at least this
_SHORTEST_LIMIT = 60.0  # seconds; no shorter time limit is suggested
_NO_ENDS: Mapping[int, float] = {}


class Change(Record):
    """One change of a waiting job, for every interface."""

    options: str  # of `stoker edit`: --gpus 3
    words: str  # after "start now": with 3 GPUs
    fields: tuple[tuple[str, object], ...]  # of PATCH /api/jobs/{id}
    request: Request | None = None  # None: as before
    time_limit: float | None = None  # None: as before


class WhatIf(Record):
    """A change, and in how many seconds the job would start; 0: now."""

    change: Change
    starts_in: float = 0.0

    @property
    def start_words(self) -> str:
        """
        >>> change = Change("--gpus 3", "with 3 GPUs", (("gpus", 3),))
        >>> WhatIf(change).start_words, WhatIf(change, 1200.0).start_words
        ('start now with 3 GPUs', 'start in about 20m00s with 3 GPUs')
        """
        when = "now" if not self.starts_in else f"in about {format_duration(self.starts_in)}"
        return f"start {when} {self.change.words}"

    def command(self, job: int) -> str:
        """The command that makes the change: `stoker edit 7 --gpus 3`."""
        return f"stoker edit {job} {self.change.options}"

    def sentence(self) -> str:
        """`--gpus 3 would start it now`, as a reason among others."""
        when = "now" if not self.starts_in else f"in about {format_duration(self.starts_in)}"
        return f"{self.change.options} would start it {when}"


def what_ifs(
    job: AnyJob,
    snapshot: Snapshot,
    cut: Collection[int] = (),
    *,
    starts_in: float | None = None,
    ends_in: Mapping[int, float] = _NO_ENDS,
    peak_memory: int | None = None,
) -> list[WhatIf]:
    """Return changes that let a waiting job start now; if there are none, much earlier.

    `snapshot` has more of the queue than one decision considers; `cut` are the request groups that
    have more waiting jobs. `starts_in`: the forecast for the job as it is. `peak_memory`: the GPU
    memory that earlier runs of its command used; no less is suggested.
    """
    now = []
    tried: list[Change] = []
    for changes in _alternatives(job, snapshot, peak_memory):
        for change in changes:
            changed = _with_change(job, change, snapshot, cut)
            if changed is not None and _starts_now(job.id, changed):
                now.append(WhatIf(change))
                break
            tried.append(change)
    if now or starts_in is None or starts_in < _MUCH_SECONDS:
        return now
    if len(snapshot.waiting) > _FORECAST_JOBS:
        return []
    latest = min(starts_in * _MUCH, starts_in - _MUCH_SECONDS)
    return _earlier(job, snapshot, cut, ends_in, latest, _worth_forecasting(tried))


def _earlier(
    job: AnyJob,
    snapshot: Snapshot,
    cut: Collection[int],
    ends_in: Mapping[int, float],
    latest: float,
    changes: list[Change],
) -> list[WhatIf]:
    """Return the first of the changes whose forecast is `latest` seconds from now at most."""
    for change in changes:
        changed = _with_change(job, change, snapshot, cut)
        if changed is None:
            continue
        for starts in islice(forecast_steps(changed, cut, ends_in), _FORECAST_STEPS):
            if job.id in starts:
                if starts[job.id] <= latest:
                    return [WhatIf(change, starts[job.id])]
                break
    return []


def _worth_forecasting(tried: list[Change]) -> list[Change]:
    """Of the changes that start nothing now: the first and the last number of GPUs."""
    counts = [change for change in tried if change.fields[0][0] == "gpus"]
    return list({change.options: change for change in (counts[:1] + counts[-1:])}.values())[
        :_FORECASTS
    ]


def _starts_now(job: int, changed: Snapshot) -> bool:
    plan = decide(limit_waiting_jobs(changed), with_reasons=False)
    return any(start.job == job for start in plan.starts)


def _with_change(
    job: AnyJob, change: Change, snapshot: Snapshot, cut: Collection[int]
) -> Snapshot | None:
    """Return the snapshot after the change; None if the place of the job would not be known.

    A job with another request joins the request group of that request, behind the jobs that come
    before it there.
    """
    others = [other for other in snapshot.waiting if other.id != job.id]
    # An edited job has no claim any more to devices that are being vacated for it.
    changed = job._replace(kept=(), time_limit=change.time_limit or job.time_limit)
    if change.request is not None:
        request = change.request
        equal = [
            other.request_group
            for other in others
            if other.request._replace(profile=0, avoid=()) == request._replace(profile=0, avoid=())
            and other.fair_share_group == job.fair_share_group
            and (-other.priority, other.id) < (-job.priority, job.id)
        ]
        group = max(set(equal), key=equal.count) if equal else 0
        if group and group in cut:
            shown = [other for other in others if other.request_group == group]
            last = max((-other.priority, other.id) for other in shown)
            if (-job.priority, job.id) > last:
                return None
        changed = changed._replace(request=request, request_group=group)
    waiting = [*others, changed]
    waiting.sort(key=lambda one: (one.request_group, -one.priority, one.id))
    return snapshot._replace(waiting=tuple(waiting))


def _alternatives(
    job: AnyJob, snapshot: Snapshot, peak_memory: int | None
) -> Iterator[Iterator[Change]]:
    """Yield kinds of changes; of each kind, the smallest change that works is wanted."""
    request = job.request
    yield _host_changes(request, snapshot)
    if request.gpus:
        yield _gpu_counts(request, snapshot)
        yield _gpu_memory(request, snapshot, peak_memory)
    yield _time_limits(job, snapshot)
    if request.gpus:
        yield _ways_to_share(request, snapshot)
        yield _any_gpu(request)


def _host_changes(request: Request, snapshot: Snapshot) -> Iterator[Change]:
    room = host_room_of(snapshot)
    cores, memory = room.free.get(CORES, 0) // MILLI, room.free.get(MEMORY, 0) >> 30
    if 0 < cores < request.cpus:
        yield Change(
            f"--cpus {cores}",
            f"with {plural(cores, 'core')}",
            (("cpus", cores),),
            request._replace(cpus=cores),
        )
    if request.host_memory is not None and 0 < memory << 30 < request.host_memory:
        yield Change(
            f"--mem {memory}G",
            f"with {format_size(memory << 30)} of memory",
            (("mem", f"{memory}G"),),
            request._replace(host_memory=memory << 30, is_auto_host=False),
        )


def _gpu_counts(request: Request, snapshot: Snapshot) -> Iterator[Change]:
    """Fewer GPUs: first as many as have room for one GPU of the request, at last one."""
    rooms = pool_of(snapshot).rooms.values()
    having = sum(
        1
        for room in rooms
        if is_eligible(request, room.device) and room.fits(room.needed_by(request))
    )
    most = min(request.gpus - 1, having) if having else request.gpus - 1
    counts = [*range(most, max(0, most - _COUNTS), -1)]
    if most > 1 and counts[-1] != 1:
        counts.append(1)
    for count in counts:
        yield Change(
            f"--gpus {count}",
            f"with {plural(count, 'GPU')}",
            (("gpus", count),),
            request._replace(gpus=count),
        )


def _gpu_memory(request: Request, snapshot: Snapshot, peak: int | None) -> Iterator[Change]:
    """As much GPU memory as enough GPUs have free, in whole GiB."""
    if request.exclusive:
        return
    free = sorted(
        (
            room.free >> 30
            for room in pool_of(snapshot).rooms.values()
            if room.device.memory and is_eligible(request._replace(memory=None), room.device)
        ),
        reverse=True,
    )
    if len(free) < request.gpus or free[request.gpus - 1] <= 0:
        return
    most = free[request.gpus - 1] << 30
    if (request.memory is None or most < request.memory) and (peak is None or most >= peak):
        yield Change(
            f"--gpu-mem {most >> 30}G",
            f"with {format_size(most)} of GPU memory",
            (("gpu_mem", f"{most >> 30}G"),),
            request._replace(memory=most, is_auto=False, profile=0),
        )


def _time_limits(job: AnyJob, snapshot: Snapshot) -> Iterator[Change]:
    """A time limit that lets the job end before a reservation is due."""
    plan = decide(limit_waiting_jobs(snapshot))
    dues = [
        held.at - snapshot.now
        for held in (plan.reservation, plan.host_reservation)
        if held is not None and held.at is not None and held.job != job.id
    ]
    expected = snapshot.estimates.seconds(job.profile) or 0.0
    for due in sorted(set(dues), reverse=True):
        limit = _whole_limit(due)
        is_shorter = job.time_limit is None or limit < job.time_limit
        if limit >= _SHORTEST_LIMIT and is_shorter and limit > expected:
            text = format_duration(limit).replace("m00s", "m").replace("h00m", "h")
            yield Change(
                f"--time-limit {text}",
                f"with a time limit of at most {text}",
                (("time_limit", limit),),
                time_limit=limit,
            )


def _whole_limit(seconds: float) -> float:
    """A time limit below `seconds`, in whole minutes, that is still short enough a moment later.

    >>> _whole_limit(1230.0), _whole_limit(7000.0), _whole_limit(100.0)
    (1140.0, 6600.0, 60.0)
    """
    step = 60.0 if seconds < 3600 else 300.0 if seconds < 86400 else 3600.0
    return (seconds * 0.96 - 5.0) // step * step


def _ways_to_share(request: Request, snapshot: Snapshot) -> Iterator[Change]:
    rooms = pool_of(snapshot).rooms.values()
    if MPS in {room.mode_of(request) for room in rooms}:
        share, words = TIME, "sharing the GPU by time slices"
    elif request.gpus == 1 and any(room.mode == MPS for room in rooms):
        share, words = MPS, "sharing the GPU with MPS"
    else:
        return
    yield Change(f"--share {share}", words, (("share", share),), request._replace(share=share))


def _any_gpu(request: Request) -> Iterator[Change]:
    if request.ids:
        yield Change("--gpu-ids any", "on any GPU", (("gpu_ids", []),), request._replace(ids=()))
    if request.model is not None:
        yield Change(
            "--gpu-model any",
            "on any model of GPU",
            (("gpu_model", ""),),
            request._replace(model=None),
        )
