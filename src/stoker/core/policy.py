"""`decide`: one snapshot in, one plan out. The daemon, `stoker why` and the simulator all use it.

Order: priority; then whose share runs least; then who has waited longest for the length of his job
(short jobs overtake, but nobody for ever); then first come first served. The first job that does
not fit gets a reservation: the devices that will have room soonest are kept for it, so a stream of
narrow jobs cannot starve a wide one. Later jobs may fill the hole only where they should not delay
it: beside it, or for less time than the reservation is away (by their time limit, or by how long
their like usually take). Jobs without GPUs run beside all that, as many as there are CPU slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stoker.core.model import (
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
from stoker.core.space import Space

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

# Jobs vary; one that usually takes an hour is trusted to be over in an hour and a half.
_TRUST = 1.5
_SHORTEST = 10.0
# One device in four is for those who have waited longer than Rules.patience.

AnyJob = WaitingJob | ReadyJob


class Ground(Protocol):
    """Where jobs are placed: the devices of a host, or the simulator's many."""

    now: float

    @property
    def has_room(self) -> bool:
        """Whether anything is left on any device; False saves a look at each for every job."""

    def is_possible(self, request: Request) -> bool: ...
    def place(self, request: Request, end: float | None) -> tuple[int, ...] | None: ...
    def would_fit(self, request: Request) -> bool: ...
    def take(self, request: Request, devices: tuple[int, ...], end: float | None) -> None: ...
    def reserve(self, request: Request) -> tuple[tuple[int, ...], float | None]: ...


def decide(snapshot: Snapshot, *, tells_why: bool = True) -> Plan:
    """Which waiting jobs start now, and for what the others wait. Same snapshot, same plan.

    The daemon does not ask why, and is spared looking at jobs for which there is no room at all.
    """
    if snapshot.draining:
        return Plan((), None, {job.id: DRAINING for job in snapshot.waiting})
    ground = Space(snapshot.now, snapshot.devices, snapshot.running, snapshot.states or {})
    cpu_free = snapshot.cpu_slots - sum(1 for job in snapshot.running if not job.request.gpus)
    order = in_order(snapshot.waiting, snapshot.running, snapshot.now, snapshot.rules)
    left = _left(snapshot.limits, snapshot.running) if snapshot.limits else {}
    return plan(order, ground, cpu_free, snapshot.rules, tells_why, left)


def plan(
    order: Iterable[AnyJob],
    ground: Ground,
    cpu_free: int,
    rules: Rules,
    tells_why: bool = False,
    left: dict[str, int] | None = None,
) -> Plan:
    """Place the jobs one after another. `left`: how many more of a share may run at all."""
    starts: list[Start] = []
    waits: dict[int, str] = {}
    reservation: Reservation | None = None
    for job in order:
        request = job.request
        if left and left.get(job.share, 1) <= 0:
            waits[job.id] = SHARE_FULL
            continue
        if request.gpus == 0:
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
        end = over_by(job, ground.now)
        devices = None
        if ground.has_room and (reservation is None or rules.backfill):
            devices = ground.place(request, end)
        if devices is not None:
            ground.take(request, devices, end)
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
    return Plan(tuple(starts), reservation, waits)


def _left(limits: dict[str, int], running: Iterable[RunningJob]) -> dict[str, int]:
    left = dict(limits)
    for job in running:
        _count(left, job.share)
    return left


def _count(left: dict[str, int] | None, share: str) -> None:
    if left and share in left:
        left[share] -= 1


def over_by(job: AnyJob, now: float) -> float | None:
    """When a job that starts now will be over, as far as anybody can tell."""
    lengths = [] if job.time_limit is None else [job.time_limit]
    if job.expected is not None:
        lengths.append(job.expected * _TRUST)
    return now + min(lengths) if lengths else None


def in_order(
    waiting: Iterable[AnyJob], running: Iterable[RunningJob], now: float, rules: Rules
) -> Iterator[AnyJob]:
    """The jobs in the order in which they may choose.

    Taking turns between shares depends on what was just started; it is assumed that all that is
    offered is taken, which is right for those at the front, and nobody else starts.
    """
    lines: dict[str, list[AnyJob]] = {}
    for job in waiting:
        lines.setdefault(job.share if rules.is_fair else "", []).append(job)
    for line in lines.values():
        line.sort(key=lambda job: _rank(job, now, rules), reverse=True)  # the first at the end
    in_use = dict.fromkeys(lines, 0)
    for one in running:
        if one.share in in_use:
            in_use[one.share] += len(one.devices)
    while len(lines) > 1:
        heads = {share: line[-1] for share, line in lines.items()}
        share = min(
            heads, key=lambda s: (-heads[s].priority, in_use[s], _rank(heads[s], now, rules))
        )
        job = lines[share].pop()
        in_use[share] += job.request.gpus
        yield job
        if not lines[share]:
            del lines[share]
    for line in lines.values():
        yield from reversed(line)


def _rank(job: AnyJob, now: float, rules: Rules) -> tuple[int, int, float, int]:
    """Who has waited longest, measured by the length of the job, comes first.

    So short jobs overtake long ones, but a long one comes nearer to the front for as long as it
    waits, and behind nobody who came after its patience ended.
    """
    waited = now - job.since
    if not rules.short_first or waited > rules.patience:
        return (-job.priority, 0, 0.0, job.id)
    length = max(rules.typical if job.expected is None else job.expected, _SHORTEST)
    return (-job.priority, 1, -max(0.0, waited) / length, job.id)
