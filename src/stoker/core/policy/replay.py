"""Simulate the policy on a trace of jobs, in virtual time: `stoker simulate`.

The policy is that of the daemon (`place_jobs` and `sort_jobs`). Only the devices are simplified:
they are identical and every job uses whole ones, so a stack of free devices and a heap of job ends
suffice, and thousands of devices cost no more than a few.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from stoker.core.model import UNCOUNTED, Request, Rules, RunningJob, WaitingJob
from stoker.core.policy.decide import MAX_JOBS_PER_GROUP, place_jobs, sort_jobs
from stoker.core.policy.host_room import HostRoom
from stoker.core.policy.host_share import HostLimits
from stoker.core.policy.placement import likely_end_of_running
from stoker.core.profiles.estimates import Estimate, Estimates, length_class, update_estimate
from stoker.core.record import Record

_NO_LIMITS = HostLimits(UNCOUNTED, cpu_slots=0, gpu_slots=0)


class TraceJob(Record):
    id: int
    submit: float
    seconds: float
    gpus: int
    profile: int = 0
    time_limit: float | None = None


class ReplayProfiles:
    """The durations known during a replay; updated after each job if `learns` is set."""

    def __init__(self, known: dict[int, Estimate] | None = None, *, learns: bool = False) -> None:
        self._known = known or {}
        self._learns = learns
        self._typical: float | None = None

    @property
    def estimates(self) -> Estimates:
        if self._typical is None:
            seconds = [estimate.seconds for estimate in self._known.values()]
            self._typical = sum(seconds) / len(seconds) if seconds else 0.0
        return Estimates(self._known, self._typical)

    def finished(self, job: TraceJob) -> None:
        if self._learns and job.profile:
            self._known[job.profile] = update_estimate(self._known.get(job.profile), job.seconds)
            self._typical = None


class Result(Record):
    """Waiting times are in seconds, in the order of the trace."""

    waits: list[float]
    makespan: float
    utilization: float  # of the devices, 0 to 1, from the first submit to the last end


class EqualDevices:
    """The devices of the replay; implements `decide.Placement`."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.count = count
        self._free = list(range(count - 1, -1, -1))
        self._running: dict[int, RunningJob] = {}
        self._placed: list[tuple[float, float, tuple[int, ...]]] = []  # by this decision
        self._estimates = Estimates({})
        self._kept_until: float | None = None
        self._is_kept = False

    @property
    def room(self) -> int:
        return len(self._free)

    @property
    def has_room(self) -> bool:
        return bool(self._free)

    def begin(self, now: float, estimates: Estimates) -> None:
        """Begin a decision: earlier reservations no longer count."""
        self.now, self._is_kept, self._kept_until = now, False, None
        self._estimates = estimates
        self._placed.clear()

    def is_possible(self, request: Request) -> bool:
        return request.gpus <= self.count

    def place(self, request: Request, end: float | None) -> tuple[int, ...] | None:
        # The reservation needs more devices than are free, so all free devices are reserved.
        if self._is_kept and (end is None or self._kept_until is None or end > self._kept_until):
            return None
        return tuple(self._free[-request.gpus :]) if self.would_fit(request) else None

    def would_fit(self, request: Request) -> bool:
        return request.gpus <= len(self._free)

    def take(
        self, request: Request, devices: tuple[int, ...], end: float | None, likely: float
    ) -> None:
        del self._free[-request.gpus :]
        self._placed.append((likely, self.now, devices))

    def keep(self, request: Request, devices: tuple[int, ...], likely: float) -> bool:
        return False  # a replay needs no time to vacate devices

    def reserve(self, request: Request, not_before: float) -> tuple[tuple[int, ...], float | None]:
        missing = request.gpus - len(self._free)
        now, estimates = self.now, self._estimates
        ends = [
            (likely_end_of_running(job, now, estimates), job.started, job.devices)
            for job in self._running.values()
        ]
        ends += self._placed
        heapq.heapify(ends)
        kept: list[int] = []
        at = not_before
        while len(kept) < missing:
            end, _, devices = heapq.heappop(ends)
            at = max(at, end)
            kept += devices
        self._is_kept, self._kept_until = True, None if at == float("inf") else at
        return tuple(kept[:missing]), self._kept_until

    def start(self, job: WaitingJob, devices: tuple[int, ...]) -> None:
        """Start a job on the devices that the decision chose."""
        ends_by = None if job.time_limit is None else self.now + job.time_limit
        self._running[job.id] = RunningJob(
            id=job.id,
            attempt=job.id,
            request=job.request,
            devices=devices,
            started=self.now,
            ends_by=ends_by,
            fair_share_group=job.fair_share_group,
            profile=job.profile,
        )

    def release(self, job: int) -> None:
        self._free += self._running.pop(job).devices


def replay(
    jobs: Sequence[TraceJob],
    devices: int,
    rules: Rules,
    profiles: ReplayProfiles,
) -> Result:
    """Run the trace through the policy, with the estimates that the profiles have at each time."""
    pool = EqualDevices(devices)
    groups: dict[tuple[int, int], deque[WaitingJob]] = {}
    by_id = {job.id: job for job in jobs}
    running: list[tuple[float, int]] = []
    waits = dict.fromkeys(by_id, 0.0)
    coming = deque(sorted(jobs, key=lambda job: (job.submit, job.id)))
    busy_seconds = last_end = 0.0
    while coming or running:
        now = min([running[0][0]] if running else [], default=float("inf"))
        if coming:
            now = min(now, coming[0].submit)
        while running and running[0][0] <= now:
            _, id = heapq.heappop(running)
            pool.release(id)
            profiles.finished(by_id[id])
        while coming and coming[0].submit <= now:
            job = coming.popleft()
            known = profiles.estimates.of(job.profile)
            length = length_class(known) if rules.short_first else 0
            group = groups.setdefault((job.gpus, length), deque())
            group.append(
                WaitingJob(
                    id=job.id,
                    priority=0,
                    request=Request(job.gpus),
                    time_limit=job.time_limit,
                    since=job.submit,
                    profile=job.profile,
                )
            )
        for start in _starts(pool, groups, rules, now, profiles):
            job = by_id[start.id]
            waits[job.id] = now - job.submit
            busy_seconds += job.seconds * job.gpus
            last_end = max(last_end, now + job.seconds)
            heapq.heappush(running, (now + job.seconds, job.id))
    first = min((job.submit for job in jobs), default=0.0)
    span = last_end - first
    return Result(list(waits.values()), span, busy_seconds / (span * devices) if span else 0.0)


def _starts(
    pool: EqualDevices,
    groups: dict[tuple[int, int], deque[WaitingJob]],
    rules: Rules,
    now: float,
    profiles: ReplayProfiles,
) -> Iterator[WaitingJob]:
    """Decide about the first jobs of the request groups until no more start, like the daemon."""
    estimates = profiles.estimates
    while pool.room and groups:
        pool.begin(now, estimates)
        count = min(MAX_JOBS_PER_GROUP, pool.room)
        first = {job.id: (key, job) for key, jobs in groups.items() for job in islice(jobs, count)}
        order = sort_jobs([job for _, job in first.values()], (), now, rules, estimates)
        host = HostRoom(now, _NO_LIMITS, ())  # a trace has neither cores nor memory
        starts = place_jobs(order, pool, host, rules, estimates).starts
        for start in starts:
            key, job = first[start.job]
            groups[key].remove(job)
            pool.start(job, start.devices)
            yield job
            if not groups[key]:
                del groups[key]
        if not starts:
            return
