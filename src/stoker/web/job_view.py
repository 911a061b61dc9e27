"""One job in full, and pages of jobs."""

from __future__ import annotations

import time

from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.client.views import why as wait_reasons
from stoker.client.views.running_jobs import run_view
from stoker.client.views.what_if import what_if_json
from stoker.engine.model import LOCAL
from stoker.engine.store import job_queries
from stoker.engine.store.job_queries import JobRow
from stoker.engine.store.job_table import Filters, JobTable
from stoker.errors import UsageError
from stoker.features.results.reports.metric_cache import Reports, params_of
from stoker.features.sweeps import store as sweeps
from stoker.record import Record
from stoker.states import STATES
from stoker.text.selectors import parse_selector


def job_in_full(queue: Queue, row: JobRow, reports: Reports) -> dict[str, object]:
    """As in `stoker show --json`, with the reasons for waiting, parameters and metrics."""
    db = queue.db
    wait = wait_reasons.explain_wait(db, queue.settings, row)
    run = run_view(db, queue.settings, row)
    return {
        **views.job_in_full(db, queue.settings, row),
        "run": None if run is None else run.as_json(time.time()),
        "why": wait.reasons,
        "what_if": what_if_json(row, wait.what_ifs),
        "ready": _is_ready(row),
        "params": params_of(db, row),
        "metrics": reports.metrics(row),
    }


def _is_ready(row: JobRow) -> bool:
    """Whether the job waits for resources of this host only, so that its priority decides when it
    starts."""
    is_due = row.eligible_at is None or row.eligible_at <= time.time()
    is_here = not row.request.backend
    return row.state == "queued" and is_here and not row.blockers and is_due


class JobsQuery(Record):
    """What the address of a list of jobs says: quick filters, a filter and an order."""

    state: str | None = None
    tag: str | None = None
    name: str | None = None
    sweep: str | None = None
    on: str | None = None
    q: str | None = None
    where: str | None = None
    sort: str | None = None
    starred: bool = False

    def filters(self, queue: Queue) -> Filters:
        """Raises UsageError; NotFound for an unknown sweep."""
        return Filters(
            states=parse_states(self.state),
            tag=self.tag or None,
            name=self.name or None,
            sweep=sweeps.get(queue.db, self.sweep).id if self.sweep else None,
            text=self.q or None,
            starred=self.starred,
            backend=None if not self.on else "" if self.on == LOCAL else self.on,
        )


def jobs_page(queue: Queue, query: JobsQuery, before: int | None, limit: int) -> dict[str, object]:
    """One page of jobs, newest first, and the id that continues it (None at the end)."""
    table = JobTable(queue.db, query.filters(queue))
    with queue.db.reading():
        ids = table.ids(before=before, limit=limit + 1)
        rows = job_queries.jobs(queue.db, ids[:limit])
    return {
        "jobs": [views.job_json(queue.db, queue.settings, row) for row in rows],
        "next": ids[limit - 1] if len(ids) > limit else None,
    }


def parse_states(text: str | None) -> tuple[str, ...] | None:
    """Parse `failed`, `failed,lost` or `active`; None means all states."""
    if not text:
        return None
    found: dict[str, None] = {}
    for word in text.split(","):
        states = parse_selector(word.strip()).states if word.strip() else None
        if states is None:
            raise UsageError(f"`{word}` is not a state", f"states: {', '.join(STATES)}")
        found.update(dict.fromkeys(states))
    return None if len(found) == len(STATES) else tuple(found)
