"""`decide`: one snapshot in, one plan out. The daemon, `stoker why` and the simulator all use it.

Order: priority; then whose share runs least; then who has waited longest for the length of his job
(short jobs overtake, but nobody for ever); then first come first served. The first job that does
not fit gets a reservation: the devices that will have room soonest are kept for it, so a stream of
narrow jobs cannot starve a wide one. Later jobs may fill the hole only where they should not delay
it: beside it, or for less time than the reservation is away (by their time limit, or by how long
their command profile says). Jobs without GPUs run beside all that, as many as there are CPU slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stoker.core.model import (
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
from stoker.core.policy.placement import DevicePool
from stoker.core.profiles.estimates import NO_ESTIMATES, Estimates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object  # `typing` takes as long to load as all of this package

# Reasons why a job was not started; explain.py turns them into sentences.
NO_DEVICE = "no_device"
NO_CPU_SLOT = "no_cpu_slot"
RESERVED = "reserved"
IMPOSSIBLE = "impossible"
DRAINING = "draining"
SHARE_FULL = "share_full"

_SHORTEST = 10.0
# How many jobs of one request group a decision sees at most.
MOST_SEEN = 16

AnyJob = WaitingJob | ReadyJob


class Placement(Protocol):
    """Where jobs are placed: the devices of a host, or the simulator's many."""

    now: float

    @property
    def has_room(self) -> bool:
        """Whether anything is left on any device; False saves a look at each for every job."""

    def is_possible(self, request: Request) -> bool: ...
    def place(self, request: Request, end: float | None) -> tuple[int, ...] | None: ...
    def would_fit(self, request: Request) -> bool: ...
    def take(
        self, request: Request, devices: tuple[int, ...], end: float | None, likely: float
    ) -> None: ...
    def reserve(self, request: Request) -> tuple[tuple[int, ...], float | None]: ...


def decide(snapshot: Snapshot, *, tells_why: bool = True) -> Plan:
    """Which waiting jobs start now, and for what the others wait. Same snapshot, same plan.

    The daemon does not ask why, and is spared looking at jobs for which there is no room at all.
    """
    if snapshot.draining:
        return Plan((), None, {job.id: DRAINING for job in snapshot.waiting})
    estimates = snapshot.estimates
    ground = space_of(snapshot)
    cpu_free = snapshot.cpu_slots - sum(1 for job in snapshot.running if not job.request.gpus)
    order = order_of(snapshot)
    left = _left(snapshot.limits, snapshot.running) if snapshot.limits else {}
    return plan(order, ground, cpu_free, snapshot.rules, estimates, tells_why, left)


def space_of(snapshot: Snapshot) -> DevicePool:
    """The room on the devices of a snapshot, before anything is started."""
    states = snapshot.states or {}
    return DevicePool(snapshot.now, snapshot.devices, snapshot.running, states, snapshot.estimates)


def order_of(snapshot: Snapshot) -> Iterator[AnyJob]:
    """The waiting jobs in the order in which they are placed."""
    return in_order(
        snapshot.waiting, snapshot.running, snapshot.now, snapshot.rules, snapshot.estimates
    )


def in_view(snapshot: Snapshot) -> Snapshot:
    """The snapshot with only those waiting jobs that the daemon looks at in one decision."""
    groups: dict[int, list[AnyJob]] = {}
    for job in snapshot.waiting:
        groups.setdefault(job.line or -job.id, []).append(job)
    requests = [group[0].request for group in groups.values()]
    count = jobs_to_see(requests, snapshot.devices, snapshot.running, snapshot.cpu_slots)
    seen = tuple(job for group in groups.values() for job in group[:count])
    return snapshot._replace(waiting=seen)


def jobs_to_see(
    requests: Iterable[Request],
    devices: Iterable[Device],
    running: Iterable[RunningJob],
    cpu_slots: int,
) -> int:
    """How many jobs of each request group one decision looks at.

    Where every job wants one slot at most, no more can start than there are free slots; others
    may be overtaken, so then it pays to look further down.
    """
    requests = list(requests)
    if not all(map(_is_narrow, requests)):
        return MOST_SEEN
    free = sum(device.slots for device in devices)
    counts_cpu = any(not request.gpus for request in requests)
    if counts_cpu:
        free += cpu_slots
    for job in running:
        free -= len(job.devices) or int(counts_cpu)
    return max(1, min(MOST_SEEN, free + 1))


def _is_narrow(request: Request) -> bool:
    return request.gpus <= 1 and request.memory is None and not request.is_auto


def plan(
    order: Iterable[AnyJob],
    ground: Placement,
    cpu_free: int,
    rules: Rules,
    estimates: Estimates = NO_ESTIMATES,
    tells_why: bool = False,
    left: dict[str, int] | None = None,
) -> Plan:
    """Place the jobs one after another. `left`: how many more of a share may run at all."""
    starts: list[Start] = []
    waits: dict[int, str] = {}
    reservation: Reservation | None = None
    wants_cpu = False
    for job in order:
        request = job.request
        if left and left.get(job.share, 1) <= 0:
            waits[job.id] = SHARE_FULL
            continue
        if request.gpus == 0:
            wants_cpu = True
            if cpu_free > 0:
                cpu_free -= 1
                starts.append(Start(job.id, ()))
                _count(left, job.share)
            else:
                waits[job.id] = NO_CPU_SLOT
            continue
        if not tells_why and not ground.has_room:
            continue
        if not ground.is_possible(request):
            waits[job.id] = IMPOSSIBLE
            continue
        end = over_by(job, ground.now, estimates)
        devices = None
        if ground.has_room and (reservation is None or rules.backfill):
            devices = ground.place(request, end)
        if devices is not None:
            ground.take(request, devices, end, likely_end_of(job, ground.now, estimates))
            starts.append(Start(job.id, devices))
            _count(left, job.share)
        elif reservation is not None and ground.has_room and ground.would_fit(request):
            waits[job.id] = RESERVED
        else:
            waits[job.id] = NO_DEVICE
            if reservation is None:
                kept, at = ground.reserve(request)
                if kept or at is not None:
                    reservation = Reservation(job.id, kept, at)
    has_room = ground.has_room or (wants_cpu and cpu_free > 0)
    return Plan(tuple(starts), reservation, waits, has_room)


def _left(limits: dict[str, int], running: Iterable[RunningJob]) -> dict[str, int]:
    left = dict(limits)
    for job in running:
        _count(left, job.share)
    return left


def _count(left: dict[str, int] | None, share: str) -> None:
    if left and share in left:
        left[share] -= 1


def over_by(job: AnyJob, now: float, estimates: Estimates) -> float | None:
    """When a job that starts now is over at the latest; None when that is unknown."""
    lengths = (job.time_limit, estimates.bound(job.family))
    known = [length for length in lengths if length is not None]
    return now + min(known) if known else None


def likely_end_of(job: AnyJob, now: float, estimates: Estimates) -> float:
    """When a job that starts now is likely over, as `likely_end` says once it runs."""
    lengths = (job.time_limit, estimates.seconds(job.family))
    return now + min((length for length in lengths if length is not None), default=float("inf"))


def in_order(
    waiting: Iterable[AnyJob],
    running: Iterable[RunningJob],
    now: float,
    rules: Rules,
    estimates: Estimates = NO_ESTIMATES,
) -> Iterator[AnyJob]:
    """The jobs in the order in which they may choose.

    Taking turns between shares depends on what was just started; it is assumed that all that is
    offered is taken, which is right for those at the front, and nobody else starts.
    """
    lines: dict[str, list[AnyJob]] = {}
    for job in waiting:
        lines.setdefault(job.share if rules.is_fair else "", []).append(job)
    for line in lines.values():
        line.sort(key=lambda job: _rank(job, now, rules, estimates), reverse=True)  # pops the first
    in_use = dict.fromkeys(lines, 0)
    for one in running:
        if one.share in in_use:
            in_use[one.share] += len(one.devices)
    while len(lines) > 1:
        heads = {share: line[-1] for share, line in lines.items()}
        share = min(
            heads,
            key=lambda s: (-heads[s].priority, in_use[s], _rank(heads[s], now, rules, estimates)),
        )
        job = lines[share].pop()
        in_use[share] += job.request.gpus
        yield job
        if not lines[share]:
            del lines[share]
    for line in lines.values():
        yield from reversed(line)


def _rank(
    job: AnyJob, now: float, rules: Rules, estimates: Estimates
) -> tuple[int, int, float, int]:
    """Who has waited longest, measured by the length of the job, comes first.

    So short jobs overtake long ones, but a long one comes nearer to the front for as long as it
    waits, and behind nobody who came after its patience ended.
    """
    waited = now - job.since
    if not rules.short_first or waited > rules.patience:
        return (-job.priority, 0, 0.0, job.id)
    known = estimates.seconds(job.family)
    length = max(estimates.typical if known is None else known, _SHORTEST)
    return (-job.priority, 1, -max(0.0, waited) / length, job.id)
