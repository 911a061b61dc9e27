"""Why each of many jobs waits and when it starts: one look at the host for all of them.

`waiting.why` looks at the host anew for each job; for the two hundred on the page this asks the
same policy once. Jobs that are alike to it share their sentences.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from stoker import waiting
from stoker.api import Queue
from stoker.cards_view import Shown
from stoker.core.explain import explain_ready
from stoker.core.forecast import forecast
from stoker.core.model import Plan, ReadyJob, Snapshot, WaitingJob
from stoker.core.policy import decide
from stoker.core.record import Record
from stoker.daemon.presence import daemon_pid
from stoker.store import find
from stoker.store.find import JobRow

_DEPTH = 16  # of each line; what is further back waits for the same things
_NO_DAEMON = "no daemon is running; `stoker daemon start` starts one"


class Wait(Record):
    why: str
    starts_at: float | None = None  # seconds since the epoch
    in_line: bool = False  # it waits for nothing but devices


def waits(
    queue: Queue,
    rows: Iterable[JobRow],
    ready: list[int],
    cards: tuple[list[Shown], str | None],
) -> dict[int, Wait]:
    """By job. `ready` are those that wait for nothing but devices, in their order."""
    db, settings = queue.db, queue.settings
    rows = list(rows)
    if not rows:
        return {}
    snapshot = waiting.snapshot(db, settings, depth=_DEPTH, cards=cards)
    plan = decide(snapshot)
    starts = forecast(snapshot) if find.has_known_end(db) else {}
    teller = _Teller(snapshot, plan)
    no_daemon = [_NO_DAEMON] if daemon_pid(settings.state_dir) is None else []
    places = {job: place for place, job in enumerate(ready)}
    now = time.time()
    found = {}
    for row in rows:
        place = places.get(row.id)
        if place is None:
            sentences = waiting.why(db, settings, row)
        else:
            sentences = no_daemon + teller.sentences(row, place)
        start = starts.get(row.id)
        at = None if start is None or start == float("inf") else now + start
        found[row.id] = Wait("; ".join(sentences) or "it starts now", at)
    return found


class _Teller:
    """Sentences for ready jobs; the same for all that ask for the same."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self._snapshot = snapshot
        self._plan = plan
        self._jobs: dict[int, WaitingJob | ReadyJob] = {job.id: job for job in snapshot.waiting}
        self._known: dict[object, tuple[list[str], bool]] = {}

    def sentences(self, row: JobRow, ahead: int) -> list[str]:
        job = self._jobs.get(row.id)
        key = (row.request, row.share, self._plan.waits.get(row.id) if job else None)
        alike = (row.request, row.share)
        if job is not None:
            if key not in self._known:
                self._known[key] = self._known[alike] = self._explain(job)
            told, counts = self._known[key]
        elif alike in self._known:
            told, counts = self._known[alike]
        else:
            told, counts = [], True
        if not counts or not ahead or (job is not None and not told):
            return told
        # First: it is what decides, and what is left when there is little room to say it.
        return [f"{ahead} {'job' if ahead == 1 else 'jobs'} in front of it", *told]

    def _explain(self, job: WaitingJob | ReadyJob) -> tuple[list[str], bool]:
        """(what is said of it, whether those in front of it matter)."""
        alone = explain_ready(job, self._snapshot, self._plan, 0)
        return alone, explain_ready(job, self._snapshot, self._plan, 1) != alone
