"""Update the command profile after an attempt, and the request of a job that is retried."""

from __future__ import annotations

from stoker.engine.daemon.gpus.gpu_usage import NOTHING_SEEN, GpuUse
from stoker.engine.daemon.gpus.gpus import Gpus
from stoker.engine.model import Outcome
from stoker.engine.outcome.retry import Verdict
from stoker.engine.profiles.gpu_memory import after_oom
from stoker.engine.store import attempts, events, profiles, ready_jobs, request_groups
from stoker.engine.store.database import Database
from stoker.record import Record

# Some programs fall back to the CPU silently; after this long, start-up is no explanation.
_UNUSED_SECONDS = 60.0
# Before it executes its program, a process is a copy of the runner, so less cannot be measured.
_SMALLEST_PEAK = 64 << 20


class EndedAttempt(Record):
    """An attempt that has ended."""

    job: attempts.JobToJudge
    outcome: Outcome
    verdict: Verdict
    use: GpuUse
    started_at: float | None

    @property
    def seconds(self) -> float | None:
        return (
            None if self.started_at is None else max(0.0, self.outcome.ended_at - self.started_at)
        )


def learn(db: Database, gpus: Gpus, group: ready_jobs.RequestGroup, ended: EndedAttempt) -> bool:
    """Record what the attempt used; True if the estimate of a waiting job may have changed."""
    job, use, verdict = ended.job, ended.use, ended.verdict
    if use != NOTHING_SEEN:
        attempts.record_gpu_use(db, ended.outcome.attempt, use.memory, use.utilization, use.energy)
    seconds = ended.seconds or 0.0
    if seconds > _UNUSED_SECONDS and gpus.is_monitored and job.devices and use.memory is None:
        text = f"it ran for {seconds:.0f} s and never used its GPU"
        events.record_event(db, job.job, ended.outcome.ended_at, "gpu_unused", text)
    if verdict.event == "succeed":
        has_changed = profiles.learn(
            db, job.profile, ended.seconds, use.memory, host_memory=_host_peak(ended)
        )
        return has_changed or group.request.is_auto_host
    if verdict.cause != "gpu_oom":
        return False
    if verdict.delay is not None and not verdict.is_counted:
        alone = group.request._replace(exclusive=True, memory=None, is_auto=False)
        request_groups.change_request(db, job.job, alone, group.fair_share_group)
    elif verdict.delay is not None:
        _raise_request(db, gpus, group, ended)
    return profiles.learn(db, job.profile, None, use.memory, is_short=True)


def _host_peak(ended: EndedAttempt) -> int:
    """The peak of the host's memory of an attempt; the kernel reports none of small processes."""
    return max(ended.outcome.max_rss_bytes, _SMALLEST_PEAK)


def _raise_request(
    db: Database, gpus: Gpus, group: ready_jobs.RequestGroup, ended: EndedAttempt
) -> None:
    """Give a job that ran out of GPU memory and is retried more memory, or other GPUs."""
    job = ended.job
    request = group.request._replace(memory=job.claim)
    names = {device.number: device.uuid or device.visible for device in gpus.devices}
    places = tuple(names[number] for number in job.devices if number in names)
    most = max((device.memory for device in gpus.devices), default=0)
    needed = ended.outcome.needed_gpu_memory
    way = job.settings.on_oom
    wanted = after_oom(request, way, ended.use.memory, places, most, needed)
    if wanted != request:
        request_groups.change_request(db, job.job, wanted, group.fair_share_group)
