"""Why waiting jobs wait and when they start, computed from one snapshot for all of them."""

from __future__ import annotations

import time
from collections.abc import Iterable

from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.client.views import why as wait_reasons
from stoker.client.views.gpus import GpuView
from stoker.engine.daemon.status import why_not_running
from stoker.engine.policy.short_reasons import SEPARATOR
from stoker.engine.store.database import Database
from stoker.engine.store.job_queries import JobRow
from stoker.features import call
from stoker.record import Record


class Wait(Record):
    why: str
    short: str = ""  # the same in a few words: `behind 4 jobs · GPU 2 reserved for 25`
    starts_at: float | None = None  # seconds since the epoch
    ready: bool = False  # it waits for GPUs or CPU slots only


class Waits(Record):
    """The reasons of waiting jobs, and the jobs for which GPUs are reserved, by GPU."""

    by_job: dict[int, Wait]
    reserved: dict[int, int]


def waits(
    queue: Queue,
    rows: Iterable[JobRow],
    ready: list[int],
    gpus: tuple[list[GpuView], str | None],
) -> Waits:
    """The reasons of each job. `ready` are jobs that wait for GPUs or CPU slots only."""
    db, settings = queue.db, queue.settings
    rows = list(rows)
    if not rows:
        return Waits({}, {})
    view = wait_reasons.QueueView(db, settings, gpus=gpus)
    starts = view.starts()
    not_running = why_not_running(settings.state_dir)
    daemon = [] if not_running is None else [not_running]
    stopped = (not_running or "").partition(";")[0]
    ready_ids = set(ready)
    now = time.time()
    found = {}
    for row in rows:
        if row.id in ready_ids:  # on this host
            # The position comes first, since the web UI may cut off the rest.
            sentences = daemon + view.reasons(row, place_first=True)
            short = view.short(row) or ("" if daemon else "starts now")
        else:
            sentences = wait_reasons.why(db, settings, row)
            short = short_unready(db, row, now)
        start = starts.get(row.id)
        found[row.id] = Wait(
            why="; ".join(sentences) or "it starts now",
            short=SEPARATOR.join(filter(None, (stopped, short))),
            starts_at=None if start is None else now + start,
        )
    return Waits(found, view.reserved_for())


def short_unready(db: Database, row: JobRow, now: float) -> str:
    """Why a job waits that does not wait for GPUs or CPU slots of this host, in a few words."""
    if row.state == "held":
        return "held"
    words = views.waiting_words(db, row, now)
    if not words and row.request.backend:
        words = call("short_on_backend", db, row) or ""
    return words
