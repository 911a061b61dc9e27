"""Why a job waits, asked from outside the daemon with the policy that the daemon uses."""

from __future__ import annotations

import time

from stoker.board import process_words, result_words
from stoker.cards_view import Shown, shown_cards
from stoker.core.durations import format_duration
from stoker.core.explain import explain_ready, what_if
from stoker.core.forecast import forecast
from stoker.core.model import (
    CardState,
    Device,
    ReadyJob,
    Rules,
    RunningJob,
    Snapshot,
    WaitingJob,
)
from stoker.core.policy import NO_DEVICE, RESERVED, decide
from stoker.core.states import ACTIVE, FINAL
from stoker.core.tenants import Tenants, state_of
from stoker.daemon import presence
from stoker.settings import Settings, cpu_slots
from stoker.store import find, ledger, sweeps
from stoker.store.database import Database
from stoker.store.find import JobRow

_SEEN = 200
_LISTED = 16


def snapshot(
    db: Database,
    settings: Settings,
    extra: JobRow | None = None,
    depth: int = _SEEN,
    cards: tuple[list[Shown], str | None] | None = None,
) -> Snapshot:
    """The policy's view, from outside the daemon. `cards` are those of `shown_cards`, if known."""
    running = []
    for attempt in ledger.open_attempts(db):
        started = attempt.started_mono or time.monotonic()
        ends_by = None if attempt.time_limit is None else started + attempt.time_limit
        running.append(RunningJob(
            attempt.job, attempt.attempt, attempt.request, attempt.devices, started, ends_by,
            attempt.expected, attempt.share, attempt.family,
        ))  # fmt: skip
    waiting: dict[int, WaitingJob | ReadyJob] = {}
    offset = time.time() - time.monotonic()
    for line in ledger.ready_lines(db):
        for job in ledger.heads(db, ledger.read_line(db, line), depth, offset):
            waiting[job.id] = job
    if extra is not None and extra.id not in waiting:
        waiting[extra.id] = _as_waiting(extra)
    slots = find.meta(db, "cpu_slots")
    devices, states = _cards(running, cards or shown_cards(db, settings))
    return Snapshot(
        time.monotonic(), devices, int(str(slots)) if slots is not None else cpu_slots(settings),
        tuple(running), tuple(waiting.values()), ledger.is_draining(db), states,
        Rules(typical=ledger.typical_seconds(db)), sweeps.limits(db),
    )  # fmt: skip


def _cards(
    running: list[RunningJob], cards: tuple[list[Shown], str | None]
) -> tuple[tuple[Device, ...], dict[int, CardState] | None]:
    """The devices with everybody who is on them, as the daemon sees them."""
    shown, trouble = cards
    if trouble is None and all(card.tenants is None for card in shown):
        return tuple(card.device for card in shown), None
    states = {
        card.device.number: state_of(
            card.device, card.tenants or Tenants({}, (), 0), running, trouble or card.closed
        )
        for card in shown
    }
    return tuple(card.device for card in shown), states


def likely_starts(db: Database, settings: Settings) -> dict[int, float]:
    """Seconds until the jobs at the head of the queue are likely to start."""
    return forecast(snapshot(db, settings, depth=_LISTED))


def _as_waiting(row: JobRow) -> WaitingJob:
    since = row.submitted_at - time.time() + time.monotonic()
    return WaitingJob(row.id, row.priority, row.request, row.time_limit, row.share, None, since)


def why(db: Database, settings: Settings, row: JobRow) -> list[str]:
    """Sentences that say what a job waits for; empty when it is about to start."""
    if row.state == "held":
        return [f"it is held; `stoker release {row.id}` lets it run"]
    if row.state in ACTIVE:
        cards = ", ".join(map(str, row.devices))
        place = f"it is {row.state}" + (f" on gpu {cards}" if cards else "")
        return [text for text in (place, process_words(db, row)) if text]
    if row.state in FINAL:
        words = result_words(row, db)
        return [f"it is {row.state}" + (f": {words}" if words else "")]
    reasons = []
    for needs, condition, met in find.dependencies(db, row.id):
        if not met:
            other = find.job(db, needs)
            must = {"ok": "must succeed", "any": "must end", "notok": "must fail"}[condition]
            reasons.append(f"job {needs} {must} first; it is {other.state}")
    if row.eligible_at is not None and row.eligible_at > time.time():
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.eligible_at))
        what = f"attempt {row.attempts + 1} is due" if row.attempts else "it may not begin before"
        reasons.append(f"{what} {'at ' if row.attempts else ''}{at}")
    if reasons:
        return reasons
    seen = snapshot(db, settings, row)
    seen_before = sum(
        1 for job in seen.waiting if (-job.priority, job.id) < (-row.priority, row.id)
    )
    ahead = find.ahead_of(db, row)
    job = next(job for job in seen.waiting if job.id == row.id)
    plan = decide(seen)
    reasons = explain_ready(job, seen, plan, ahead)
    if plan.waits.get(job.id) in (NO_DEVICE, RESERVED):
        start = forecast(seen).get(job.id)
        if start is not None:
            at = time.strftime("%H:%M", time.localtime(time.time() + start))
            reasons.append(f"likely start at {at}, in {format_duration(start)}")
        change = what_if(job, seen)
        if change is not None:
            reasons.append(change)
    if not reasons and seen_before < ahead:
        reasons = [f"{ahead} jobs are in front of it"]
    trouble = presence.trouble(settings.state_dir)
    return reasons if trouble is None else [trouble, *reasons]
