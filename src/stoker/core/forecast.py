"""When waiting jobs will start: the policy itself, played forward over the likely ends."""

from __future__ import annotations

import heapq

from stoker.core.model import RunningJob, Snapshot
from stoker.core.policy import decide, over_by
from stoker.core.space import likely_end

_STEPS = 200


def forecast(snapshot: Snapshot) -> dict[int, float]:
    """Seconds from now by job, for those whose start follows from what is known.

    Time limits and learned lengths say when jobs end; where neither is known, nothing is promised.
    """
    if snapshot.draining:
        return {}
    starts: dict[int, float] = {}
    running = {job.attempt: job for job in snapshot.running}
    ends = [(likely_end(job, snapshot.now), job.attempt) for job in snapshot.running]
    heapq.heapify(ends)
    waiting = {job.id: job for job in snapshot.waiting}
    next_attempt = max(running, default=0) + 1
    now = snapshot.now
    for _ in range(_STEPS):
        plan = decide(
            snapshot._replace(
                now=now, running=tuple(running.values()), waiting=tuple(waiting.values())
            )
        )
        for start in plan.starts:
            job = waiting.pop(start.job)
            starts[job.id] = now - snapshot.now
            end = over_by(job, now)
            running[next_attempt] = RunningJob(
                job.id, next_attempt, job.request, start.devices, now, end, None, job.share
            )
            heapq.heappush(ends, (float("inf") if end is None else end, next_attempt))
            next_attempt += 1
        if not waiting or not ends or ends[0][0] == float("inf"):
            break
        now = max(now, ends[0][0])
        while ends and ends[0][0] <= now:
            del running[heapq.heappop(ends)[1]]
    return starts
