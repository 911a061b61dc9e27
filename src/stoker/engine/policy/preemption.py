"""Which preemptible jobs give way, so that a job that does not fit can start.

A job makes preemptible jobs give way if it does not fit now, would fit without them, and will not
fit soon anyway. No more of them are asked than it needs:

- jobs that gave way less often come first, then those that lose the least GPU time;
- if that takes more jobs than asking the largest ones first, the fewer ones are asked;
- a job that gave way before is asked again only after it has run for a while, so that it makes
  progress between two interruptions.

Whether a job fits is the answer of `decide` itself, so it holds for every resource. The devices
that are vacated are kept for the job that caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from stoker.engine.model import DeviceState, Plan, Request, RunningJob, Snapshot, WaitingJob
from stoker.engine.policy.decide import (
    HOST_RESERVED,
    NO_CPU_SLOT,
    NO_DEVICE,
    NO_HOST_ROOM,
    RESERVED,
    VACATING,
    AnyJob,
    decide,
    host_room_of,
    order_of,
    pool_of,
)
from stoker.engine.policy.share_mode import share_of_start
from stoker.record import Record

# A job that will fit within this time does not make others give way.
SOON_SECONDS = 10.0
# How long a job that gave way before runs at least, before it is asked again.
MIN_RUN_SECONDS = 60.0
# A job that has just started is not asked: its start may not even be reported yet.
_FIRST_SECONDS = 1.0
# The number of waiting jobs that one decision tries to make room for.
_MAX_JOBS = 16
_HELPED = frozenset({NO_DEVICE, RESERVED, NO_CPU_SLOT, NO_HOST_ROOM, HOST_RESERVED})


class Preemption(Record):
    """Attempts that are asked to make room for a job (0: for another user)."""

    job: int
    devices: tuple[int, ...]
    attempts: tuple[int, ...]
    outside: str = ""  # for whom, in words, if not for a job


class OutsideDemand(Record):
    """A process outside of this queue that needs devices on which our jobs run."""

    who: str  # in words
    amounts: dict[int, int | None]  # bytes by device; None: the whole device
    is_using: bool = False  # it computes there already; else it waits for the lease of one


def can_be_asked(job: RunningJob, now: float) -> bool:
    """Whether a running job may be asked to give way now."""
    if not job.request.preemptible or job.gives_way:
        return False
    return now - job.started >= (MIN_RUN_SECONDS if job.preemptions else _FIRST_SECONDS)


def cost_of_giving_way(job: RunningJob, now: float) -> tuple[int, float, int]:
    """Return the order in which jobs are asked: how often they gave way, and the GPU time lost."""
    return job.preemptions, (now - job.started) * max(1, len(job.devices)), -job.attempt


def plan_preemptions(snapshot: Snapshot, plan: Plan) -> tuple[Preemption, ...]:
    """Return the jobs that are asked to give way to waiting ones. Deterministic.

    `plan`: the decision for the snapshot, with reasons. If it starts a job that is not preemptible,
    nothing is asked before that job has started.
    """
    candidates = [job for job in snapshot.running if can_be_asked(job, snapshot.now)]
    if not candidates or snapshot.draining or _starts_normal(snapshot, plan):
        return ()
    asked: list[Preemption] = []
    # The host when all jobs that were asked have left, and those that they left for have started.
    base = _without(snapshot._replace(waiting=()), [j for j in snapshot.running if j.gives_way])
    for job in _kept_jobs(snapshot, plan):
        base = _with_holder(base, job, job.kept)
    for job in _waiting_for_room(snapshot, plan):
        found = None
        if not _fits_soon(job, base):
            found = _make_room(job, base, candidates)
        if found is not None:
            asked.append(found)
            leaving = [one for one in candidates if one.attempt in found.attempts]
            base = _with_holder(_without(base, leaving), job, found.devices)
            candidates = [one for one in candidates if one.attempt not in found.attempts]
        elif plan.reservation is not None and plan.reservation.job == job.id:
            base = _with_holder(base, job, plan.reservation.devices)
    return tuple(asked)


def _starts_normal(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether a plan starts a job that is not preemptible."""
    preemptible = {job.id for job in snapshot.waiting if job.request.preemptible}
    return any(start.job not in preemptible for start in plan.starts)


def plan_for_others(snapshot: Snapshot, demands: Sequence[OutsideDemand]) -> tuple[Preemption, ...]:
    """Return the jobs that are asked to give way to processes outside of this queue.

    A process that waits for several devices may need only one of them, so devices are vacated one
    after the other until it has what it needs.
    """
    asked = []
    for demand in demands:
        found = _for_user(snapshot, demand) if demand.is_using else _for_waiter(snapshot, demand)
        if found:
            asked.append(Preemption(0, (), found, demand.who))
            snapshot = snapshot._replace(
                running=tuple(
                    job._replace(gives_way=job.gives_way or job.attempt in found)
                    for job in snapshot.running
                )
            )
    return tuple(asked)


def _for_user(snapshot: Snapshot, demand: OutsideDemand) -> tuple[int, ...]:
    """All preemptible attempts on the devices of a process, however short they have run."""
    return tuple(
        job.attempt
        for job in snapshot.running
        if job.request.preemptible
        and not job.gives_way
        and not demand.amounts.keys().isdisjoint(job.devices)
    )


def _for_waiter(snapshot: Snapshot, demand: OutsideDemand) -> tuple[int, ...]:
    wanted = demand.amounts.keys()
    if any(job.gives_way and not wanted.isdisjoint(job.devices) for job in snapshot.running):
        return ()  # it may get that device, and need no other one
    candidates = [job for job in snapshot.running if can_be_asked(job, snapshot.now)]
    uuids = {device.number: device.uuid or device.visible for device in snapshot.devices}
    choices = []
    for number in sorted(wanted & uuids.keys()):
        amount = demand.amounts[number]
        request = Request(gpus=1, memory=amount, exclusive=amount is None, ids=(uuids[number],))
        # Only our own jobs are in its way: it does not care that we have closed the device.
        states = {**(snapshot.states or {}), number: DeviceState()}
        base = snapshot._replace(waiting=(), states=states, limits=None, draining=False)
        job = WaitingJob(id=0, priority=0, request=request)
        if not _fits_soon(job, base):
            found = _make_room(job, base, candidates)
            if found is not None:
                choices.append((len(found.attempts), number, found.attempts))
    return min(choices)[2] if choices else ()


def _waiting_for_room(snapshot: Snapshot, plan: Plan) -> Iterator[AnyJob]:
    """Yield the first jobs, in order, that others may make room for."""
    count = 0
    for job in order_of(snapshot):
        if job.request.preemptible or count == _MAX_JOBS:
            return
        if plan.waits.get(job.id) in _HELPED:
            count += 1
            yield job


def _kept_jobs(snapshot: Snapshot, plan: Plan) -> Iterator[AnyJob]:
    """Yield the jobs for which devices are being vacated."""
    return (job for job in snapshot.waiting if plan.waits.get(job.id) == VACATING)


def _with_holder(snapshot: Snapshot, job: AnyJob, devices: tuple[int, ...]) -> Snapshot:
    """The snapshot with devices held by a waiting job, as if it ran there."""
    holder = RunningJob(
        id=job.id,
        attempt=-job.id,
        request=job.request,
        devices=devices,
        started=snapshot.now,
        fair_share_group=job.fair_share_group,
        profile=job.profile,
        share=share_of_start(job.request, devices, snapshot.devices, snapshot.states or {}),
    )
    return snapshot._replace(running=(*snapshot.running, holder))


def _without(snapshot: Snapshot, jobs: Sequence[RunningJob]) -> Snapshot:
    """The snapshot after the end of these jobs."""
    gone = {job.attempt for job in jobs}
    left = tuple(job for job in snapshot.running if job.attempt not in gone)
    return snapshot._replace(running=left)


def _fits_soon(job: AnyJob, base: Snapshot) -> bool:
    """Whether running jobs will likely end soon that the job waits for."""
    host = host_room_of(base)
    at: float | None = host.fits_at(host.claim_of(job.request))
    if job.request.gpus and at is not None:
        _, at = pool_of(base).reserve(job.request, at)
    return at is not None and at <= base.now + SOON_SECONDS


def _make_room(job: AnyJob, base: Snapshot, candidates: Sequence[RunningJob]) -> Preemption | None:
    """Return the attempts that have to give way to a job, and the devices that it then gets.

    None if none have to, or if it would not fit even without all of them.
    """
    alone = job._replace(kept=())

    def devices_without(asked: Sequence[RunningJob]) -> tuple[int, ...] | None:
        left = _without(base, asked)._replace(waiting=(alone,))
        starts = decide(left, with_reasons=False).starts
        return starts[0].devices if starts else None

    if devices_without(candidates) is None or devices_without(()) is not None:
        return None

    def cost(one: RunningJob) -> tuple[int, float, int]:
        return cost_of_giving_way(one, base.now)

    def size(one: RunningJob) -> tuple[int, int, tuple[int, float, int]]:
        return -len(one.devices), -(one.request.memory or 0), cost(one)

    def fits(asked: Sequence[RunningJob]) -> bool:
        return devices_without(asked) is not None

    cheapest = _enough(sorted(candidates, key=cost), fits)
    largest = _enough(sorted(candidates, key=size), fits)
    chosen = largest if len(largest) < len(cheapest) else cheapest
    devices = devices_without(chosen)
    assert devices is not None
    return Preemption(job.id, devices, tuple(one.attempt for one in chosen))


def _enough(
    candidates: list[RunningJob], fits: Callable[[Sequence[RunningJob]], bool]
) -> list[RunningJob]:
    """Return candidates, preferably the first ones, such that the job needs each of them.

    It fits without all of them, and what fits without some fits without more.
    """
    least, most = 1, len(candidates)  # find the shortest beginning of the list that suffices
    while least < most:
        middle = (least + most) // 2
        if fits(candidates[:middle]):
            most = middle
        else:
            least = middle + 1
    chosen = candidates[:most]
    for one in reversed(candidates[: most - 1]):
        others = [other for other in chosen if other is not one]
        if fits(others):
            chosen = others
    return chosen
