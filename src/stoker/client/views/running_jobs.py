"""Running jobs for the web UI: progress, newest metric, likely end, GPU memory and warnings."""

from __future__ import annotations

import time
from collections.abc import Iterable

from stoker.client.views.job_progress import job_progress
from stoker.engine.store.database import Database
from stoker.engine.store.job_queries import JobRow
from stoker.features import call
from stoker.record import Record
from stoker.settings import Settings
from stoker.states import STARTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MEASURED = 100  # running jobs whose usage is read; each takes a few queries
_SMALL_SECONDS = 5.0  # a likely end that moved by less is no news
_SMALL_PART = 0.03


class RunView(Record):
    """What is known about a running job besides its record."""

    work: str = ""  # what it reports: `step 120/1000 (12%)`
    metric: str = ""  # the newest: `loss 0.31`
    percent: float | None = None  # of its work
    is_reported: bool = False  # by the job itself; otherwise from the duration of earlier runs
    ends_at: float | None = None  # seconds since the epoch
    is_bound: bool = False  # it ends at `ends_at` at the latest: its time limit
    gpu_memory: int | None = None  # bytes in use on its GPUs
    gpu_memory_requested: int | None = None
    gpu_memory_words: str = ""  # `8.0 GiB of 40 GiB`
    warnings: tuple[str, ...] = ()

    def as_json(self, now: float) -> dict[str, Any]:
        left = None if self.ends_at is None else max(0.0, round(self.ends_at - now, 1))
        return {
            "work": self.work,
            "metric": self.metric,
            "percent": self.percent,
            "is_reported": self.is_reported,
            "ends_in": left,
            "ends_by_limit": self.is_bound,
            "gpu_memory_bytes": self.gpu_memory,
            "gpu_memory_requested_bytes": self.gpu_memory_requested,
            "gpu_memory": self.gpu_memory_words,
            "warnings": list(self.warnings),
        }

    def differs(self, old: RunView, now: float) -> bool:
        """Whether a browser needs an update; a likely end that moved a little does not count."""
        if self._replace(ends_at=None, percent=None) != old._replace(ends_at=None, percent=None):
            return True
        if (self.ends_at is None) != (old.ends_at is None):
            return True
        if abs((self.percent or 0.0) - (old.percent or 0.0)) >= 1.0:
            return True
        if self.ends_at is None or old.ends_at is None:
            return False
        small = max(_SMALL_SECONDS, _SMALL_PART * abs(self.ends_at - now))
        return abs(self.ends_at - old.ends_at) > small


def run_view(
    db: Database, settings: Settings, row: JobRow, *, has_usage: bool = True
) -> RunView | None:
    """Return what is known about a running job; None if it does not run."""
    if row.state not in STARTED:
        return None
    now = time.time()
    progress = job_progress(db, settings, row, now)
    use = call("running_use", settings, row, now) if has_usage else None
    view = RunView()
    if progress is not None:
        left, fraction = progress.remaining, progress.fraction
        view = view._replace(
            work=progress.work_words(),
            metric=progress.metric_words(),
            percent=None if fraction is None else round(100 * min(1.0, fraction), 1),
            is_reported=progress.work is not None and progress.work.fraction is not None,
            ends_at=None if left is None else now + left.seconds,
            is_bound=left is not None and left.is_bound,
        )
    if use is not None:
        view = view._replace(
            gpu_memory=use.usage.gpu_memory,
            gpu_memory_requested=use.requested.gpu_memory,
            gpu_memory_words=use.gpu_memory_words(),
            warnings=use.warnings,
        )
    return view


def run_views(db: Database, settings: Settings, rows: Iterable[JobRow]) -> dict[int, RunView]:
    """The running jobs among `rows`; the usage of the first hundred."""
    found = {}
    for place, row in enumerate(rows):
        view = run_view(db, settings, row, has_usage=place < _MEASURED)
        if view is not None:
            found[row.id] = view
    return found
