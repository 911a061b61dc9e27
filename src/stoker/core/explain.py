"""Why a job waits, in words, from the same plan that starts jobs."""

from __future__ import annotations

from stoker.core.durations import format_duration
from stoker.core.model import Plan, RunningJob, Snapshot, WaitingJob
from stoker.core.policy import DRAINING, IMPOSSIBLE, NO_CPU_SLOT, RESERVED


def explain_ready(job: WaitingJob, snapshot: Snapshot, plan: Plan, ahead: int) -> list[str]:
    """Reasons for a job that waits for nothing but devices; empty when it starts now.

    `ahead` counts the ready jobs that come before it but were not part of the snapshot.
    """
    if any(start.job == job.id for start in plan.starts):
        return []
    reason = plan.waits[job.id]
    if reason == DRAINING:
        return ["the queue is drained: no job is started until `stoker daemon resume`"]
    if reason == IMPOSSIBLE:
        return [f"it needs {_gpus(job.gpus)}, and this host has {len(snapshot.devices)}"]
    if reason == NO_CPU_SLOT:
        busy = [r for r in snapshot.running if not r.gpus]
        sentences = [f"all {snapshot.cpu_slots} CPU slots are taken by {_jobs(busy)}"]
    elif reason == RESERVED and plan.reservation is not None:
        held = plan.reservation
        when = "" if held.at is None else f", likely in {format_duration(held.at - snapshot.now)}"
        sentences = [
            f"{_cards(held.devices)} {_are(held.devices)} kept for job {held.job}, "
            f"which came first and needs {len(held.devices)}{when}; "
            "a --time-limit short enough would let this job go first"
        ]
    else:
        sentences = [f"it needs {_gpus(job.gpus)}", *_holders(snapshot)]
    if ahead:
        sentences.append(f"{ahead} {'job' if ahead == 1 else 'jobs'} in front of it")
    return sentences


def _holders(snapshot: Snapshot) -> list[str]:
    """Who holds each device, and until when if a time limit tells."""
    by_device: dict[int, list[RunningJob]] = {}
    for job in snapshot.running:
        for index in job.devices:
            by_device.setdefault(index, []).append(job)
    sentences = []
    for device in snapshot.devices:
        jobs = by_device.get(device.number, [])
        if len(jobs) < device.slots:
            sentences.append(f"gpu {device.visible} is free")
            continue
        ends = [job.ends_by for job in jobs if job.ends_by is not None]
        until = ""
        if ends:
            until = f" for at most {format_duration(min(ends) - snapshot.now)} more"
        sentences.append(f"gpu {device.visible} runs {_jobs(jobs)}{until}")
    return sentences


def _jobs(jobs: list[RunningJob]) -> str:
    ids = [str(job.id) for job in jobs[:5]] + (["..."] if len(jobs) > 5 else [])
    return f"job{'s' if len(jobs) > 1 else ''} {', '.join(ids)}"


def _gpus(count: int) -> str:
    return f"{count} gpu{'s' if count != 1 else ''}"


def _cards(devices: tuple[int, ...]) -> str:
    return f"gpu{'s' if len(devices) > 1 else ''} {', '.join(map(str, devices))}"


def _are(devices: tuple[int, ...]) -> str:
    return "are" if len(devices) > 1 else "is"
