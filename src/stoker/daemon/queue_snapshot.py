"""A snapshot of the queue, loaded from the database.

The daemon keeps the same in memory (loop.py) and compares the two now and then; `why`, the lists
and the web UI have only this one.
"""

from __future__ import annotations

from stoker.core.model import Device, DeviceState, ReadyJob, RunningJob, Snapshot
from stoker.store import attempts, meta, ready_jobs, sweeps
from stoker.store.database import Database
from stoker.store.profiles import Profiles


def load_snapshot(
    db: Database,
    now: float,
    clock_offset: float,
    devices: tuple[Device, ...],
    states: dict[int, DeviceState] | None,
    cpu_slots: int,
    depth: int,
) -> tuple[Snapshot, set[int]]:
    """The snapshot with up to `depth` jobs of each request group, and the groups that have more.

    `now` is monotonic, `clock_offset` the wall clock less that.
    """
    running = [_running_job(attempt, clock_offset) for attempt in attempts.open_attempts(db)]
    waiting: list[ReadyJob] = []
    cut = set()
    for line in ready_jobs.ready_groups(db):
        jobs = ready_jobs.first(db, ready_jobs.load_group(db, line), depth + 1, clock_offset)
        if len(jobs) > depth:
            cut.add(line)
        waiting += jobs[:depth]
    profiles = {job.family for job in running} | {job.family for job in waiting}
    snapshot = Snapshot(
        now, devices, cpu_slots, tuple(running), tuple(waiting), meta.is_draining(db), states,
        limits=sweeps.limits(db), estimates=Profiles(db).estimates(profiles),
    )  # fmt: skip
    return snapshot, cut


def _running_job(attempt: attempts.OpenAttempt, clock_offset: float) -> RunningJob:
    """An attempt that has not ended; until the runner reports its start, the claim counts."""
    started = attempt.started_mono or attempt.claimed_at - clock_offset
    ends_by = None if attempt.time_limit is None else started + attempt.time_limit
    return RunningJob(
        attempt.job, attempt.attempt, attempt.request, attempt.devices, started, ends_by,
        attempt.share, attempt.family,
    )  # fmt: skip
