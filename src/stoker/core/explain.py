"""Why a job waits, in words, from the same plan that starts jobs."""

from __future__ import annotations

from collections.abc import Sized

from stoker.core.durations import format_duration
from stoker.core.model import Plan, ReadyJob, Reservation, RunningJob, Snapshot, WaitingJob
from stoker.core.policy import DRAINING, IMPOSSIBLE, NO_CPU_SLOT, RESERVED


def explain_ready(
    job: WaitingJob | ReadyJob, snapshot: Snapshot, plan: Plan, ahead: int
) -> list[str]:
    """Reasons for a job that waits for nothing but devices; empty when it starts now.

    `ahead` counts the ready jobs that come before it, also those that the snapshot leaves out.
    """
    if any(start.job == job.id for start in plan.starts):
        return []
    reason = plan.waits[job.id]
    if reason == DRAINING:
        return ["the queue is drained: no job is started until `stoker daemon resume`"]
    if reason == IMPOSSIBLE:
        return [f"it needs {_gpus(job.gpus)}, and this host has {len(snapshot.devices)}"]
    if reason == NO_CPU_SLOT:
        busy = [running.id for running in snapshot.running if not running.gpus]
        busy += [start.job for start in plan.starts if not start.devices]
        taken = f" are taken by {_jobs(busy)}" if busy else " are taken"
        sentences = [f"all {snapshot.cpu_slots} CPU slots{taken}"]
    elif reason == RESERVED and plan.reservation is not None:
        sentences = [_kept(plan.reservation, snapshot)]
    else:
        sentences = [f"it needs {_gpus(job.gpus)}", *_holders(snapshot, plan)]
    if ahead:
        sentences.append(f"{ahead} {'job' if ahead == 1 else 'jobs'} in front of it")
    return sentences


def _kept(held: Reservation, snapshot: Snapshot) -> str:
    visible = {device.number: device.visible for device in snapshot.devices}
    cards = f"gpu{_s(held.devices)} {', '.join(visible[n] for n in sorted(held.devices))}"
    are = "are" if len(held.devices) > 1 else "is"
    sentence = f"{cards} {are} kept for job {held.job}, which comes first"
    if held.at is None or held.at <= snapshot.now:  # no time limit is short enough
        return sentence
    wait = format_duration(held.at - snapshot.now)
    return f"{sentence}, likely in {wait}; a --time-limit below that would let this job start now"


def _holders(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Who holds each device, and until when if a time limit tells."""
    running: dict[int, list[RunningJob]] = {}
    for job in snapshot.running:
        for number in job.devices:
            running.setdefault(number, []).append(job)
    starting: dict[int, list[int]] = {}
    for start in plan.starts:
        for number in start.devices:
            starting.setdefault(number, []).append(start.job)
    sentences = []
    for device in snapshot.devices:
        jobs, next_jobs = running.get(device.number, []), starting.get(device.number, [])
        words = []
        if jobs:
            words.append(f"runs {_jobs([job.id for job in jobs])}{_until(jobs, snapshot.now)}")
        if next_jobs:
            words.append(f"starts {_jobs(next_jobs)} now")
        if len(jobs) + len(next_jobs) < device.slots:
            words.append("has room" if words else "is free")
        sentences.append(f"gpu {device.visible} {' and '.join(words)}")
    return sentences


def _until(jobs: list[RunningJob], now: float) -> str:
    ends = [job.ends_by for job in jobs if job.ends_by is not None]
    return f" for at most {format_duration(min(ends) - now)} more" if ends else ""


def _jobs(ids: list[int]) -> str:
    shown = [str(id) for id in ids[:5]] + (["..."] if len(ids) > 5 else [])
    return f"job{_s(ids)} {', '.join(shown)}"


def _gpus(count: int) -> str:
    return f"{count} gpu{'s' if count != 1 else ''}"


def _s(things: Sized) -> str:
    return "s" if len(things) > 1 else ""
