"""One job in full, and pages of jobs."""

from __future__ import annotations

import time

from stoker.client import views, wait_reasons
from stoker.client.metric_cache import Reports, params_of
from stoker.client.queue import Queue
from stoker.client.run_views import run_view
from stoker.client.what_if_views import what_if_json
from stoker.core.formats.selectors import parse_selector
from stoker.core.model import LOCAL
from stoker.core.states import STATES
from stoker.errors import UsageError
from stoker.store import history, job_queries, sweeps
from stoker.store.history import Filters
from stoker.store.job_queries import JobRow


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


def jobs_page(
    queue: Queue,
    *,
    state: str | None,
    tag: str | None,
    name: str | None,
    sweep: str | None,
    text: str | None,
    on: str | None,
    before: int | None,
    limit: int,
    starred: bool = False,
) -> dict[str, object]:
    """One page of jobs, newest first, and the id that continues it (None at the end)."""
    filters = Filters(
        states=parse_states(state),
        tag=tag or None,
        name=name or None,
        sweep=sweeps.get(queue.db, sweep).id if sweep else None,
        text=text or None,
        starred=starred,
        backend=None if not on else "" if on == LOCAL else on,
    )
    ids, rest = history.history_page(queue.db, filters, before, limit)
    rows = job_queries.jobs(queue.db, ids)
    return {
        "jobs": [views.job_json(queue.db, queue.settings, row) for row in rows],
        "next": rest or None,
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
