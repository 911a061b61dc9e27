"""`decide`: one snapshot in, one plan out. The daemon, `stoker why` and the simulator all use it.

Order: priority, then first come first served. The first job that does not fit gets a reservation:
the devices that will be free soonest are kept for it, so a stream of narrow jobs cannot starve a
wide one. Later jobs may fill the hole only where they cannot delay it: on devices that are not
reserved, or for less time than the reservation is away (their time limit is their word).
Jobs without GPUs run beside all that, as many as there are CPU slots.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker.core.model import Plan, ReadyJob, Reservation, RunningJob, Snapshot, Start, WaitingJob
from stoker.core.placement import free_slots, next_free_times, place

# Reasons why a job was not started; explain.py turns them into sentences.
NO_DEVICE = "no_device"
NO_CPU_SLOT = "no_cpu_slot"
RESERVED = "reserved"
IMPOSSIBLE = "impossible"
DRAINING = "draining"


def decide(snapshot: Snapshot) -> Plan:
    """Which waiting jobs start now, and for what the others wait. Same snapshot, same plan."""
    if snapshot.draining:
        return Plan((), None, {job.id: DRAINING for job in snapshot.waiting})
    free = free_slots(snapshot.devices, snapshot.running)
    cpu_free = snapshot.cpu_slots - sum(1 for job in snapshot.running if not job.gpus)
    starts: list[Start] = []
    waits: dict[int, str] = {}
    reservation: Reservation | None = None
    open_devices = sum(1 for slots in free.values() if slots > 0)
    for job in sorted(snapshot.waiting, key=_rank):
        if job.gpus == 0:
            if cpu_free > 0:
                cpu_free -= 1
                starts.append(Start(job.id, ()))
            else:
                waits[job.id] = NO_CPU_SLOT
        elif job.gpus > len(snapshot.devices):
            waits[job.id] = IMPOSSIBLE
        elif job.gpus > open_devices:
            waits[job.id] = NO_DEVICE
            if reservation is None:
                reservation = _reserve(job, snapshot, free, starts)
        else:
            allowed = free
            if reservation is not None:
                allowed = _around(reservation, free, job, snapshot.now)
            devices = place(job.gpus, allowed)
            if devices is None:
                waits[job.id] = RESERVED
                continue
            for index in devices:
                free[index] -= 1
                open_devices -= free[index] == 0
            starts.append(Start(job.id, devices))
    return Plan(tuple(starts), reservation, waits)


def _rank(job: WaitingJob | ReadyJob) -> tuple[int, int]:
    return (-job.priority, job.id)


def _reserve(
    job: WaitingJob | ReadyJob, snapshot: Snapshot, free: dict[int, int], starts: list[Start]
) -> Reservation:
    running = (*snapshot.running, *_started(snapshot, starts))
    times = next_free_times(snapshot.devices, running, free, snapshot.now)[: job.gpus]
    at = max((when for when, _, _ in times), default=float("inf"))
    known = len(times) == job.gpus and at != float("inf")
    return Reservation(job.id, tuple(index for _, _, index in times), at if known else None)


def _started(snapshot: Snapshot, starts: list[Start]) -> Iterator[RunningJob]:
    """What this plan starts, as it will look in the next snapshot."""
    limits = {job.id: job.time_limit for job in snapshot.waiting}
    for id, devices in starts:
        limit = limits[id]
        ends_by = None if limit is None else snapshot.now + limit
        yield RunningJob(id, 0, len(devices), devices, snapshot.now, ends_by)


def _around(
    reservation: Reservation, free: dict[int, int], job: WaitingJob | ReadyJob, now: float
) -> dict[int, int]:
    """The free slots that `job` may use without delaying the reservation."""
    if (
        reservation.at is not None
        and job.time_limit is not None
        and now + job.time_limit <= reservation.at
    ):
        return free
    kept = set(reservation.devices)
    return {index: slots - (index in kept) for index, slots in free.items()}
