"""The scheduling policy: `decide` turns a snapshot into a plan.

The daemon, `stoker why`, forecasts and `stoker simulate` all use it. Waiting jobs are ordered by

1. priority,
2. fair share: the group with the fewest GPUs in use comes first,
3. highest response ratio next (HRRN): waiting time divided by expected duration. Within
   the same priority and fair-share group, short jobs overtake long ones, but the ratio of a long
   job grows while it waits. Jobs that waited longer than `Rules.patience` come before all others
   of the group, first come, first served,
4. first come, first served.

Jobs are placed in this order with EASY backfill (Lifka, 1995). The first job that does not fit
gets a reservation: the devices that will have room soonest are kept for it, so that a stream of
small jobs cannot starve a large one. A later job may start only if it does not delay the
reservation: it uses devices or memory that the reservation leaves free, or it ends before the
reservation is due, according to its time limit or its command profile.

Cores, memory and counters of the host (host_room.py) are kept for that job too. The first job that
lacks only these, with or without GPUs, gets a reservation of them.

Preemptible jobs come after all others. They give way to others that do not fit (preemption.py); the
devices that they vacate are kept for the job that caused it, which comes first of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from operator import itemgetter

from stoker.engine.model import (
    ARRAY_PREFIX,
    Device,
    Plan,
    ReadyJob,
    Request,
    Reservation,
    Rules,
    RunningJob,
    Snapshot,
    Start,
    WaitingJob,
)
from stoker.engine.policy.host_room import HostRoom
from stoker.engine.policy.host_share import CPU_SLOTS, HostClaim, limits_of
from stoker.engine.policy.placement import DevicePool
from stoker.engine.profiles.estimates import NO_ESTIMATES, Estimates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object  # importing `typing` takes as long as importing this whole package

# Reasons why a job does not start; explain.py turns them into sentences.
NO_DEVICE = "no_device"
NO_CPU_SLOT = "no_cpu_slot"
NO_HOST_ROOM = "no_host_room"
RESERVED = "reserved"
HOST_RESERVED = "host_reserved"
IMPOSSIBLE = "impossible"
DRAINING = "draining"
GROUP_LIMIT = "group_limit"
ARRAY_LIMIT = "array_limit"
VACATING = "vacating"

_SHORTEST = 10.0  # seconds: shorter jobs have the response ratio of a job of this duration
# The maximum number of jobs of one request group that a decision considers.
MAX_JOBS_PER_GROUP = 16

AnyJob = WaitingJob | ReadyJob


class Placement(Protocol):
    """Where jobs are placed: the devices of a host, or those of the simulator."""

    now: float

    @property
    def has_room(self) -> bool:
        """Whether any device has anything left; if not, jobs need not be checked one by one."""

    def is_possible(self, request: Request) -> bool: ...
    def place(self, request: Request, end: float | None) -> tuple[int, ...] | None: ...
    def would_fit(self, request: Request) -> bool: ...
    def take(
        self, request: Request, devices: tuple[int, ...], end: float | None, likely: float
    ) -> None: ...
    def keep(self, request: Request, devices: tuple[int, ...], likely: float) -> bool: ...
    def reserve(
        self, request: Request, not_before: float
    ) -> tuple[tuple[int, ...], float | None]: ...


def decide(snapshot: Snapshot, *, with_reasons: bool = True) -> Plan:
    """Return which waiting jobs start now and why the others wait. Deterministic.

    The daemon needs no reasons: without `with_reasons`, jobs are skipped as soon as no device has
    room.
    """
    if snapshot.draining:
        return Plan((), None, {job.id: DRAINING for job in snapshot.waiting})
    estimates = snapshot.estimates
    pool = pool_of(snapshot)
    host = host_room_of(snapshot)
    order = order_of(snapshot)
    remaining = _remaining(snapshot.limits, snapshot.running) if snapshot.limits else {}
    return place_jobs(order, pool, host, snapshot.rules, estimates, with_reasons, remaining)


def pool_of(snapshot: Snapshot) -> DevicePool:
    """Return the devices of a snapshot with their free room, before any waiting job starts."""
    states = snapshot.states or {}
    return DevicePool(snapshot.now, snapshot.devices, snapshot.running, states, snapshot.estimates)


def host_room_of(snapshot: Snapshot) -> HostRoom:
    """Return the room on the host of a snapshot, before any waiting job starts."""
    limits = limits_of(snapshot.resources, snapshot.cpu_slots, snapshot.devices)
    return HostRoom(snapshot.now, limits, snapshot.running, snapshot.estimates)


def order_of(snapshot: Snapshot) -> Iterator[AnyJob]:
    """Return the waiting jobs in the order in which they are placed."""
    return sort_jobs(
        snapshot.waiting, snapshot.running, snapshot.now, snapshot.rules, snapshot.estimates
    )


def limit_waiting_jobs(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with only the waiting jobs that the daemon considers in one decision."""
    groups: dict[int, list[AnyJob]] = {}
    for job in snapshot.waiting:
        if not job.kept:
            groups.setdefault(job.request_group or -job.id, []).append(job)
    requests = [job.request for job in snapshot.waiting]
    count = jobs_per_group(requests, snapshot.devices, snapshot.running, snapshot.cpu_slots)
    kept = tuple(job for job in snapshot.waiting if job.kept)  # always considered
    considered = tuple(job for group in groups.values() for job in group[:count])
    return snapshot._replace(waiting=(*kept, *considered))


def jobs_per_group(
    requests: Iterable[Request],
    devices: Iterable[Device],
    running: Iterable[RunningJob],
    cpu_slots: int,
) -> int:
    """Return how many jobs of each request group one decision considers.

    If every job needs one slot at most, no more jobs can start than there are free slots. Larger
    jobs may be overtaken, so then the decision looks further down the queue.
    """
    requests = list(requests)
    if not all(map(_is_narrow, requests)):
        return MAX_JOBS_PER_GROUP
    free = sum(device.slots for device in devices)
    counts_cpu = any(not request.gpus for request in requests)
    if counts_cpu:
        free += cpu_slots
    for job in running:
        free -= len(job.devices) or int(counts_cpu)
    return max(1, min(MAX_JOBS_PER_GROUP, free + 1))


def _is_narrow(request: Request) -> bool:
    if request.cpus or request.host_memory is not None or request.is_auto_host or request.needs:
        return False
    return request.gpus <= 1 and request.memory is None and not request.is_auto


def place_jobs(
    order: Iterable[AnyJob],
    pool: Placement,
    host: HostRoom,
    rules: Rules,
    estimates: Estimates = NO_ESTIMATES,
    with_reasons: bool = False,
    remaining: dict[str, int] | None = None,
) -> Plan:
    """Place the jobs in this order.

    `remaining`: how many more jobs may run, by fair-share group or array with a limit.
    """
    starts: list[Start] = []
    waits: dict[int, str] = {}
    reservation: Reservation | None = None
    host_owner: int | None = None  # the job for which host room is reserved
    skipped: list[AnyJob] = []
    wants_cpu = False
    for job in order:
        request = job.request
        if remaining and remaining.get(job.fair_share_group, 1) <= 0:
            waits[job.id] = GROUP_LIMIT
            continue
        if request.array and remaining and remaining.get(array_key(request), 1) <= 0:
            waits[job.id] = ARRAY_LIMIT
            continue
        if request.gpus and not with_reasons and not pool.has_room:
            skipped.append(job)
            continue
        if not request.gpus:
            wants_cpu = True
            for other in skipped:  # a job without GPUs must not take the host room that they need
                if _is_possible(other.request, pool, host) and not _keep(
                    other, pool, host, estimates
                ):
                    reservation = reservation or _reserve(other, pool, host)
            skipped.clear()
        claim = host.claim_of(request)
        if not _is_possible(request, pool, host):
            waits[job.id] = IMPOSSIBLE
            continue
        end = latest_end(job, pool.now, estimates)
        devices: tuple[int, ...] | None = None if request.gpus else ()
        if request.gpus and pool.has_room and (reservation is None or rules.backfill):
            devices = pool.place(request, end)
        if devices is not None and host.place(claim, end):
            likely = likely_end_if_started(job, pool.now, estimates)
            pool.take(request, devices, end, likely)
            host.take(claim, end, likely, devices)
            starts.append(Start(job.id, devices))
            _use_one(remaining, job)
            continue
        if devices is not None:
            waits[job.id] = _why_no_host_room(claim, host)
        elif _keep(job, pool, host, estimates):
            waits[job.id] = VACATING
            continue
        elif reservation is not None and pool.has_room and pool.would_fit(request):
            waits[job.id] = RESERVED
        else:
            waits[job.id] = NO_DEVICE
        if request.gpus and reservation is None:
            reservation = _reserve(job, pool, host)
        elif devices is not None and host_owner is None:
            host_owner = job.id
            host.reserve(claim)
    has_room = host.has_room and (pool.has_room or (wants_cpu and host.has_cpu_slot))
    host_reservation = None
    if with_reasons and host_owner is not None:
        host_reservation = Reservation(host_owner, (), host.reserved_at)
    return Plan(tuple(starts), reservation, waits, has_room, host_reservation)


def _is_possible(request: Request, pool: Placement, host: HostRoom) -> bool:
    is_possible = host.is_possible(host.claim_of(request))
    return is_possible and (not request.gpus or pool.is_possible(request))


def _keep(job: AnyJob, pool: Placement, host: HostRoom, estimates: Estimates) -> bool:
    """Keep the devices that are being vacated for a job; False if there are none."""
    if not job.kept:
        return False
    likely = likely_end_if_started(job, pool.now, estimates)
    if not pool.keep(job.request, job.kept, likely):
        return False
    host.reserve_with(host.claim_of(job.request), None, job.kept)
    return True


def _reserve(job: AnyJob, pool: Placement, host: HostRoom) -> Reservation | None:
    """Reserve devices and host room for a job; None if the devices cannot be reserved."""
    claim = host.claim_of(job.request)
    kept, at = pool.reserve(job.request, host.fits_at(claim))
    if not kept and at is None:
        return None
    host.reserve_with(claim, at, kept)
    return Reservation(job.id, kept, at)


def _why_no_host_room(claim: HostClaim, host: HostRoom) -> str:
    lacking = host.lacks(claim)
    if not lacking:
        return HOST_RESERVED
    return NO_CPU_SLOT if CPU_SLOTS in lacking else NO_HOST_ROOM


def _remaining(limits: dict[str, int], running: Iterable[RunningJob]) -> dict[str, int]:
    remaining = dict(limits)
    for job in running:
        _use_one(remaining, job)
    return remaining


def _use_one(remaining: dict[str, int] | None, job: AnyJob | RunningJob) -> None:
    if not remaining:
        return
    if job.fair_share_group in remaining:
        remaining[job.fair_share_group] -= 1
    if job.request.array and (key := array_key(job.request)) in remaining:
        remaining[key] -= 1


def array_key(request: Request) -> str:
    """The key of the job's array in the limits of a snapshot."""
    return f"{ARRAY_PREFIX}{request.array}"


def latest_end(job: AnyJob, now: float, estimates: Estimates) -> float | None:
    """Return the latest end of a job that starts now; None if it is unknown."""
    durations = (job.time_limit, estimates.bound(job.profile))
    known = [duration for duration in durations if duration is not None]
    return now + min(known) if known else None


def likely_end_if_started(job: AnyJob, now: float, estimates: Estimates) -> float:
    """Return the likely end of a waiting job if it starts now."""
    durations = (job.time_limit, estimates.seconds(job.profile))
    return now + min((known for known in durations if known is not None), default=float("inf"))


def sort_jobs(
    waiting: Iterable[AnyJob],
    running: Iterable[RunningJob],
    now: float,
    rules: Rules,
    estimates: Estimates = NO_ESTIMATES,
) -> Iterator[AnyJob]:
    """Yield the jobs in the order of the policy.

    The order between fair-share groups depends on which jobs start. Every job is assumed to start,
    which is true of the first ones; the order of jobs that cannot start does not matter.
    """
    classes: dict[int, list[AnyJob]] = {}
    for job in waiting:
        classes.setdefault(_class_of(job), []).append(job)
    for key in sorted(classes):
        yield from _sort_class(classes[key], running, now, rules, estimates)


def _class_of(job: AnyJob) -> int:
    """Jobs for which devices are kept come first, preemptible ones last."""
    return 0 if job.kept else 2 if job.request.preemptible else 1


def _sort_class(
    waiting: Iterable[AnyJob],
    running: Iterable[RunningJob],
    now: float,
    rules: Rules,
    estimates: Estimates,
) -> Iterator[AnyJob]:
    groups: dict[str, list[tuple[_Rank, AnyJob]]] = {}
    for job in waiting:
        ranked = groups.setdefault(job.fair_share_group if rules.is_fair else "", [])
        ranked.append((_rank(job, now, rules, estimates), job))
    for ranked in groups.values():
        ranked.sort(key=itemgetter(0), reverse=True)  # first job last
    in_use = dict.fromkeys(groups, 0)
    for one in running:
        if one.fair_share_group in in_use:
            in_use[one.fair_share_group] += len(one.devices)
    # The first job of each group. A rank has the job's id, so no two entries are equal.
    heads = [
        (ranked[-1][0][0], in_use[name], ranked[-1][0], name) for name, ranked in groups.items()
    ]
    heapify(heads)
    while heads:
        name = heads[0][-1]
        ranked = groups[name]
        _, job = ranked.pop()
        yield job
        if ranked:
            in_use[name] += job.request.gpus
            heapreplace(heads, (ranked[-1][0][0], in_use[name], ranked[-1][0], name))
        else:
            heappop(heads)


_Rank = tuple[int, int, float, int]


def _rank(job: AnyJob, now: float, rules: Rules, estimates: Estimates) -> _Rank:
    """Return the sort key of a job inside its fair-share group.

    Jobs within their patience are ordered by response ratio (HRRN); all others come before them,
    first come, first served.
    """
    waited = now - job.since
    if not rules.short_first or waited > rules.patience:
        return (-job.priority, 0, 0.0, job.id)
    known = estimates.seconds(job.profile)
    duration = max(estimates.typical if known is None else known, _SHORTEST)
    return (-job.priority, 1, -max(0.0, waited) / duration, job.id)
