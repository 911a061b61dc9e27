"""Update the command profile after an attempt, and the request of a job that is tried again."""

from __future__ import annotations

from stoker.core.model import Outcome
from stoker.core.outcome.retry import Verdict
from stoker.core.profiles.gpu_memory import after_oom
from stoker.core.record import Record
from stoker.daemon.gpus.fixed_gpus import FixedGpus
from stoker.daemon.gpus.gpu_usage import NOTHING_SEEN, GpuUse
from stoker.store import attempts, events, profiles, ready_jobs, request_groups
from stoker.store.database import Database

# Programs that find no GPU run on the CPU without a word; this long is not start-up any more.
_UNUSED_SECONDS = 60.0


class Run(Record):
    """One attempt, seen from its end."""

    facts: attempts.JobToJudge
    outcome: Outcome
    verdict: Verdict
    use: GpuUse
    begun: float | None

    @property
    def seconds(self) -> float | None:
        return None if self.begun is None else max(0.0, self.outcome.ended_at - self.begun)


def learn(db: Database, cards: FixedGpus, line: ready_jobs.RequestGroup, run: Run) -> bool:
    """Write it down; True when somebody who waits is concerned."""
    facts, use, verdict = run.facts, run.use, run.verdict
    if use != NOTHING_SEEN:
        attempts.record_gpu_use(db, run.outcome.attempt, use)
    seconds = run.seconds or 0.0
    if seconds > _UNUSED_SECONDS and cards.is_monitored and facts.devices and use.memory is None:
        text = f"in {seconds:.0f} s it was never seen on its GPU"
        events.record_event(db, facts.job, run.outcome.ended_at, "gpu_unused", text)
    if verdict.event == "succeed":
        return profiles.learn(db, facts.family, run.seconds, use.memory)
    if verdict.cause != "gpu_oom":
        return False
    if verdict.delay is not None:
        _ask_for_more(db, cards, line, run)
    return profiles.learn(db, facts.family, None, use.memory, is_short=True)


def _ask_for_more(db: Database, cards: FixedGpus, line: ready_jobs.RequestGroup, run: Run) -> None:
    """It ran out of memory and is tried again: with more, or elsewhere."""
    facts = run.facts
    request = line.request._replace(memory=facts.claim)
    names = {device.number: device.uuid or device.visible for device in cards.devices}
    places = tuple(names[number] for number in facts.devices if number in names)
    most = max((device.memory for device in cards.devices), default=0)
    wanted = after_oom(request, facts.on_oom, run.use.memory, places, most)
    if wanted != request:
        request_groups.change_request(db, facts.job, wanted, line.share)
