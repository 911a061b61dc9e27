"""Simulate the policy on a trace of jobs, in virtual time: `stoker simulate`.

The policy is that of the daemon (`place_jobs` and `sort_jobs`). Only the devices are simplified:
they are identical and every job uses whole ones, so a stack of free devices and a heap of job ends
suffice, and thousands of devices cost no more than a few.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from stoker.engine.model import UNCOUNTED, Request, Rules, RunningJob, WaitingJob
from stoker.engine.policy.decide import MAX_JOBS_PER_GROUP, place_jobs, sort_jobs
from stoker.engine.policy.host_room import HostRoom
from stoker.engine.policy.host_share import HostLimits
from stoker.engine.policy.placement import likely_end_of_running
from stoker.engine.policy.preemption import can_be_asked, cost_of_giving_way
from stoker.engine.profiles.estimates import Estimate, Estimates, length_class, update_estimate
from stoker.record import Record

_NO_LIMITS = HostLimits(UNCOUNTED, cpu_slots=0, gpu_slots=0)


class TraceJob(Record):
    id: int
    submit: float
    seconds: float
    gpus: int
    profile: int = 0
    time_limit: float | None = None
    preemptible: bool = False
    user: str = ""  # its fair-share group


# GPUs, length class, whether they are preemptible, and the user of jobs that wait together.
_GroupKey = tuple[int, int, bool, str]


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
    preemptions: int = 0  # how often a preemptible job gave way


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

    def release(self, job: int) -> RunningJob:
        """End a job; returns it."""
        released = self._running.pop(job)
        self._free += released.devices
        return released

    def running_jobs(self) -> Iterable[RunningJob]:
        return self._running.values()

    def preemptible_jobs(self) -> list[RunningJob]:
        return [job for job in self._running.values() if job.request.preemptible]


def replay(
    jobs: Sequence[TraceJob],
    devices: int,
    rules: Rules,
    profiles: ReplayProfiles,
) -> Result:
    """Run the trace through the policy, with the estimates that the profiles have at each time.

    A preemptible job that gives way does so at once, and continues later where it was stopped.
    """
    return _Replay(jobs, devices, rules, profiles).run()


class _Replay:
    def __init__(
        self, jobs: Sequence[TraceJob], devices: int, rules: Rules, profiles: ReplayProfiles
    ) -> None:
        self._jobs = {job.id: job for job in jobs}
        self._rules = rules
        self._profiles = profiles
        self._pool = EqualDevices(devices)
        self._groups: dict[_GroupKey, deque[WaitingJob]] = {}
        self._ends: list[tuple[float, int]] = []  # a heap; those of stopped jobs are not valid
        self._end_of: dict[int, float] = {}
        self._waits = dict.fromkeys(self._jobs, 0.0)
        self._has_preemptible = any(job.preemptible for job in jobs)
        self._left: dict[int, float] = {}  # seconds that jobs which gave way still need
        self._queued_at: dict[int, float] = {}  # when they returned to the queue
        self._preemptions: dict[int, int] = {}

    def run(self) -> Result:
        jobs = self._jobs.values()
        coming = deque(sorted(jobs, key=lambda job: (job.submit, job.id)))
        last_end = 0.0
        while coming or self._ends:
            now = self._ends[0][0] if self._ends else float("inf")
            if coming:
                now = min(now, coming[0].submit)
            while self._ends and self._ends[0][0] <= now:
                end, id = heapq.heappop(self._ends)
                if self._end_of.get(id) == end:
                    del self._end_of[id]
                    self._pool.release(id)
                    self._profiles.finished(self._jobs[id])
                    last_end = max(last_end, end)
            while coming and coming[0].submit <= now:
                self._queue(coming.popleft())
            self._start_jobs(now)
        span = last_end - min((job.submit for job in jobs), default=0.0)
        busy = sum(job.seconds * job.gpus for job in jobs)
        return Result(
            waits=list(self._waits.values()),
            makespan=span,
            utilization=busy / (span * self._pool.count) if span else 0.0,
            preemptions=sum(self._preemptions.values()),
        )

    def _queue(self, job: TraceJob) -> None:
        known = self._profiles.estimates.of(job.profile)
        length = length_class(known) if self._rules.short_first else 0
        group = self._groups.setdefault((job.gpus, length, job.preemptible, job.user), deque())
        group.append(
            WaitingJob(
                id=job.id,
                priority=0,
                request=Request(job.gpus, preemptible=job.preemptible),
                time_limit=job.time_limit,
                since=job.submit,
                profile=job.profile,
                fair_share_group=job.user,
            )
        )

    def _start_jobs(self, now: float) -> None:
        """Start what fits; before preemptible jobs start, others make them give way."""
        if self._has_preemptible:
            self._start_all(now, with_preemptible=False)
            while self._give_way(now):
                self._start_all(now, with_preemptible=False)
        self._start_all(now, with_preemptible=True)

    def _start_all(self, now: float, with_preemptible: bool) -> None:
        for id in self._starts(now, with_preemptible):
            job = self._jobs[id]
            self._waits[id] += now - self._queued_at.pop(id, job.submit)
            self._end_of[id] = now + self._left.get(id, job.seconds)
            heapq.heappush(self._ends, (self._end_of[id], id))

    def _starts(self, now: float, with_preemptible: bool) -> Iterator[int]:
        """Decide about the first jobs of the groups until no more start, like the daemon."""
        pool, rules, estimates = self._pool, self._rules, self._profiles.estimates
        while pool.room and self._groups:
            pool.begin(now, estimates)
            count = min(MAX_JOBS_PER_GROUP, pool.room)
            first = self._first_jobs(count, with_preemptible)
            jobs = [job for _, job in first.values()]
            order = sort_jobs(jobs, self._running(), now, rules, estimates)
            host = HostRoom(now, _NO_LIMITS, ())  # a trace has neither cores nor memory
            starts = place_jobs(order, pool, host, rules, estimates).starts
            for start in starts:
                key, job = first[start.job]
                self._groups[key].remove(job)
                if not self._groups[key]:
                    del self._groups[key]
                pool.start(job, start.devices)
                yield job.id
            if not starts:
                return

    def _running(self) -> Iterable[RunningJob]:
        """The running jobs, as far as the order depends on them."""
        return self._pool.running_jobs() if self._rules.is_fair else ()

    def _first_jobs(
        self, count: int, with_preemptible: bool
    ) -> dict[int, tuple[_GroupKey, WaitingJob]]:
        return {
            job.id: (key, job)
            for key, jobs in self._groups.items()
            if with_preemptible or not key[2]
            for job in islice(jobs, count)
        }

    def _give_way(self, now: float) -> bool:
        """Stop the preemptible jobs that are in the way of the first job that waits, if any."""
        heads = [job for _, job in self._first_jobs(1, with_preemptible=False).values()]
        order = sort_jobs(heads, self._running(), now, self._rules, self._profiles.estimates)
        first = next(order, None)
        if first is None:
            return False
        missing = first.request.gpus - self._pool.room
        candidates = [
            one
            for job in self._pool.preemptible_jobs()
            if can_be_asked(one := job._replace(preemptions=self._preemptions.get(job.id, 0)), now)
        ]
        candidates.sort(key=lambda job: cost_of_giving_way(job, now))
        chosen: list[RunningJob] = []
        while candidates and missing > 0:
            chosen.append(candidates.pop(0))
            missing -= len(chosen[-1].devices)
        if missing > 0 or not chosen:
            return False
        for job in reversed(chosen[:-1]):  # keep those that are not needed after all
            if missing + len(job.devices) <= 0:
                chosen.remove(job)
                missing += len(job.devices)
        for job in chosen:
            self._stop(job, now)
        return True

    def _stop(self, job: RunningJob, now: float) -> None:
        self._pool.release(job.id)
        self._left[job.id] = self._end_of.pop(job.id) - now
        self._queued_at[job.id] = now
        self._preemptions[job.id] = job.preemptions + 1
        self._queue(self._jobs[job.id])
