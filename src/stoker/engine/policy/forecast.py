"""When waiting jobs will start: the policy, simulated over the likely ends of running jobs."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping

from stoker.engine.model import RunningJob, Snapshot
from stoker.engine.policy.decide import decide, limit_waiting_jobs
from stoker.engine.policy.placement import likely_end_of_running
from stoker.engine.policy.preemption import SOON_SECONDS, Preemption, plan_preemptions
from stoker.engine.policy.share_mode import share_of_start
from stoker.record import Record

_STEPS = 200
_SOON_SECONDS = 1.0


def _preemptions(snapshot: Snapshot) -> tuple[Preemption, ...]:
    """The jobs that give way now; they are expected to have left after a usual grace period."""
    if not any(job.request.preemptible and not job.gives_way for job in snapshot.running):
        return ()
    return plan_preemptions(snapshot, decide(snapshot))


_NO_ENDS: Mapping[int, float] = {}


class LikelyRun(Record):
    """Where and when a job likely runs, in seconds after the forecast.

    `start` is 0 for a job that runs already; `end` is None if it cannot be predicted.
    """

    job: int
    devices: tuple[int, ...]
    start: float
    end: float | None


def forecast(
    snapshot: Snapshot, cut: Collection[int] = (), ends_in: Mapping[int, float] = _NO_ENDS
) -> dict[int, float]:
    """Return the seconds until the start of each job whose start can be predicted.

    Time limits and estimates predict the ends of jobs; jobs behind one without either have no
    forecast. `cut`: request groups that have more waiting jobs than the snapshot; the forecast
    ends where one of those jobs could be next. `ends_in`: seconds until the ends of running jobs,
    by job, where their own progress says more than an estimate.
    """
    starts: dict[int, float] = {}
    for known in forecast_steps(snapshot, cut, ends_in):
        starts = known
    return starts


def _end_of(job: RunningJob, snapshot: Snapshot, ends_in: Mapping[int, float]) -> float:
    seconds = ends_in.get(job.id)
    if seconds is not None and not job.gives_way:
        return snapshot.now + seconds
    return likely_end_of_running(job, snapshot.now, snapshot.estimates)


def likely_runs(
    snapshot: Snapshot, cut: Collection[int] = (), ends_in: Mapping[int, float] = _NO_ENDS
) -> list[LikelyRun]:
    """Return where running and waiting jobs likely run; the arguments are those of `forecast`."""
    runs = [
        LikelyRun(job.id, job.devices, 0.0, _in_seconds(_end_of(job, snapshot, ends_in), snapshot))
        for job in snapshot.running
    ]
    for _ in forecast_steps(snapshot, cut, ends_in, runs):
        pass
    return runs


def _in_seconds(end: float, snapshot: Snapshot) -> float | None:
    return None if end == float("inf") else max(0.0, end - snapshot.now)


def forecast_steps(
    snapshot: Snapshot,
    cut: Collection[int] = (),
    ends_in: Mapping[int, float] = _NO_ENDS,
    runs: list[LikelyRun] | None = None,
) -> Iterator[dict[int, float]]:
    """Yield what is known after each decision of the simulation; the last one is the forecast.

    The jobs that start are appended to `runs`.
    """
    if snapshot.draining:
        return
    starts: dict[int, float] = {}
    running = {job.attempt: job for job in snapshot.running}
    ends = [(_end_of(job, snapshot, ends_in), job.attempt) for job in snapshot.running]
    heapq.heapify(ends)
    waiting = {job.id: job for job in snapshot.waiting}
    last = {job.request_group: job.id for job in snapshot.waiting if job.request_group in cut}
    next_attempt = max(running, default=0) + 1
    now, states = snapshot.now, snapshot.states or {}
    for _ in range(_STEPS):
        later = snapshot._replace(
            now=now, running=tuple(running.values()), waiting=tuple(waiting.values())
        )
        limited = limit_waiting_jobs(later)
        plan = decide(limited, with_reasons=False)
        for start in plan.starts:
            job = waiting.pop(start.job)
            starts[job.id] = now - snapshot.now
            ends_by = None if job.time_limit is None else now + job.time_limit
            new = RunningJob(
                id=job.id,
                attempt=next_attempt,
                request=job.request,
                devices=start.devices,
                started=now,
                ends_by=ends_by,
                fair_share_group=job.fair_share_group,
                profile=job.profile,
                share=share_of_start(job.request, start.devices, snapshot.devices, states),
            )
            running[next_attempt] = new
            end = likely_end_of_running(new, now, snapshot.estimates)
            heapq.heappush(ends, (max(end, now), next_attempt))
            if runs is not None:
                seconds = _in_seconds(end, snapshot)
                runs.append(LikelyRun(job.id, start.devices, starts[job.id], seconds))
            if last.get(job.request_group) == job.id:
                yield starts
                return
            next_attempt += 1
        yield starts
        if plan.starts:
            continue  # the daemon decides again until nothing more starts
        for preemption in _preemptions(limited):
            waiting[preemption.job] = waiting[preemption.job]._replace(kept=preemption.devices)
            for attempt in preemption.attempts:
                running[attempt] = running[attempt]._replace(gives_way=True)
                ends = [
                    (min(end, now + SOON_SECONDS) if of == attempt else end, of) for end, of in ends
                ]
            heapq.heapify(ends)
        if not waiting or not ends or ends[0][0] == float("inf"):
            break
        # A job past its end is about to end; only jobs that start now have a forecast of 0.
        now = max(ends[0][0], now, snapshot.now + _SOON_SECONDS)
        while ends and ends[0][0] <= now:
            del running[heapq.heappop(ends)[1]]
