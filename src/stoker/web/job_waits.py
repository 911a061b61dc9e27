"""Why waiting jobs wait and when they start, computed from one snapshot for all of them."""

from __future__ import annotations

import time
from collections.abc import Iterable

from stoker.client import wait_reasons
from stoker.client.gpu_views import GpuView
from stoker.client.queue import Queue
from stoker.core.record import Record
from stoker.daemon.status import why_not_running
from stoker.store.job_queries import JobRow


class Wait(Record):
    why: str
    starts_at: float | None = None  # seconds since the epoch
    start_error: float | None = None  # seconds by which such a forecast is usually wrong at most
    ready: bool = False  # it waits for GPUs or CPU slots only


def waits(
    queue: Queue,
    rows: Iterable[JobRow],
    ready: list[int],
    gpus: tuple[list[GpuView], str | None],
) -> dict[int, Wait]:
    """The reasons of each job. `ready` are jobs that wait for GPUs or CPU slots only."""
    db, settings = queue.db, queue.settings
    rows = list(rows)
    if not rows:
        return {}
    view = wait_reasons.QueueView(db, settings, gpus=gpus)
    starts = view.starts()
    not_running = why_not_running(settings.state_dir)
    daemon = [] if not_running is None else [not_running]
    ready_ids = set(ready)
    now = time.time()
    found = {}
    for row in rows:
        if row.id in ready_ids:  # on this host
            # The position comes first, since the web UI may cut off the rest.
            sentences = daemon + view.reasons(row, place_first=True)
        else:
            sentences = wait_reasons.why(db, settings, row)
        start = starts.get(row.id)
        found[row.id] = Wait(
            why="; ".join(sentences) or "it starts now",
            starts_at=None if start is None else now + start.seconds,
            start_error=None if start is None else start.error,
        )
    return found
