"""A snapshot of the queue, loaded from the database.

The daemon keeps the same data in memory (loop.py) and compares the two periodically; `why`, the job
lists and the web UI always load it from the database.
"""

from __future__ import annotations

from stoker.engine.model import (
    UNCOUNTED,
    Device,
    DeviceState,
    HostResources,
    ReadyJob,
    RunningJob,
    Snapshot,
)
from stoker.engine.store import arrays, attempts, meta, ready_jobs
from stoker.engine.store.database import Database
from stoker.engine.store.profiles import Profiles
from stoker.engine.store.request_groups import group_limits
from stoker.text.limit_signal import seconds_to_save

_USUAL_GRACE_SECONDS = 10.0  # the default of the setting `grace`; this is only a forecast


def load_snapshot(
    db: Database,
    now: float,
    clock_offset: float,
    devices: tuple[Device, ...],
    states: dict[int, DeviceState] | None,
    cpu_slots: int,
    depth: int,
    resources: HostResources = UNCOUNTED,
    *,
    of_this_boot: bool = False,
) -> tuple[Snapshot, set[int]]:
    """The snapshot with up to `depth` jobs of each request group, and the groups that have more.

    `now` is monotonic, `clock_offset` the wall clock less that. `of_this_boot`: without attempts
    that a restart of the host has ended; no daemon may have recorded that.
    """
    # Until the runner reports a start, the time of the claim counts.
    running = [
        running_job(
            attempt,
            attempt.started_mono or attempt.claimed_at - clock_offset,
            None if attempt.asked_at is None else attempt.asked_at - clock_offset,
        )
        for attempt in attempts.open_attempts(db, of_this_boot=of_this_boot)
    ]
    waiting: list[ReadyJob] = ready_jobs.with_kept_devices(db, clock_offset)
    kept = {job.id for job in waiting}
    cut = set()
    for group in ready_jobs.ready_groups(db):
        jobs = ready_jobs.first(db, ready_jobs.load_group(db, group), depth + 1, clock_offset)
        if len(jobs) > depth:
            cut.add(group)
        waiting += [job for job in jobs[:depth] if job.id not in kept]
    profiles = {job.profile for job in running} | {job.profile for job in waiting}
    snapshot = Snapshot(
        now=now,
        devices=devices,
        cpu_slots=cpu_slots,
        running=tuple(running),
        waiting=tuple(waiting),
        draining=meta.is_draining(db),
        states=states,
        limits=group_limits(db) | arrays.limits(db, {job.request.array for job in waiting}),
        estimates=Profiles(db).estimates(profiles),
        resources=resources,
    )
    return snapshot, cut


def running_job(
    attempt: attempts.OpenAttempt, started: float, asked: float | None = None
) -> RunningJob:
    """An attempt that has not ended, as the policy sees it.

    `started`, and `asked` if it was asked to give way and that time is known, are monotonic.
    """
    ends_by = None if attempt.time_limit is None else started + attempt.time_limit
    if asked is not None:
        grace = attempt.settings.grace
        usual = _USUAL_GRACE_SECONDS if grace is None else grace
        end = asked + seconds_to_save(usual, attempt.settings.signal)
        ends_by = end if ends_by is None else min(end, ends_by)
    return RunningJob(
        id=attempt.job,
        attempt=attempt.attempt,
        request=attempt.request,
        devices=attempt.devices,
        started=started,
        ends_by=ends_by,
        fair_share_group=attempt.fair_share_group,
        profile=attempt.profile,
        cpus=attempt.cpus,
        preemptions=attempt.preemptions,
        gives_way=attempt.asked_at is not None,
        share=attempt.share,
    )
