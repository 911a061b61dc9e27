"""What the web UI shows at one moment, and the difference between two moments.

The set is bounded: running jobs, the head of the queue, and the jobs that finished last. It is read
with the functions behind `stoker ls --json`, in one read transaction, so it is consistent. Backends
are shown as their drivers last recorded them; nothing here contacts Slurm or Ray.
"""

from __future__ import annotations

import json
import os
import time

from stoker.client import views
from stoker.client.backend_views import backend_json
from stoker.client.gpu_views import GpuView, load_gpu_views
from stoker.client.host_views import load_host_view
from stoker.client.queue import Queue
from stoker.core.record import Record
from stoker.core.states import STARTED
from stoker.daemon.gpus.process_owners import user_name
from stoker.devices.discovery import has_driver
from stoker.store import backends, history, job_queries
from stoker.store.job_queries import JobRow
from stoker.web.job_waits import Wait, waits
from stoker.web.sweeps_view import SweepCache
from stoker.web.throttled_cache import ThrottledCache

READY = 150
UNREADY = 50  # kept for held and delayed jobs, which a long queue would hide otherwise
ELSEWHERE = 100  # jobs that backends have not started yet
RECENT = 20
RUNNING = 1000
# Asking the driver takes a separate process; a person needs no faster updates.
_DRIVER_SECONDS = 2.0
_IDLE_SECONDS = 5.0
# Texts such as "in 3m 20s" change every second; they may be this old.
WAITS_SECONDS = 2.0
_UNKNOWN = Wait("")


class PageState(Record):
    at: float
    jobs: dict[int, dict[str, object]]
    serialized: dict[int, str]  # as JSON text, to compare versions of a job
    running: tuple[int, ...]
    queue: tuple[int, ...]
    recent: tuple[int, ...]
    waits: dict[int, Wait]  # of all jobs in `queue`
    gpus: list[dict[str, object]]
    gpu_error: str | None  # why the GPUs cannot be read
    backends: list[dict[str, object]]
    host: dict[str, object]  # cores, memory and counters
    counts: dict[str, int]
    sweeps: dict[str, dict[str, object]]
    daemon: dict[str, object]

    def job(self, id: int) -> dict[str, object]:
        """As in `stoker ls --json`; for a waiting job also why it waits."""
        wait = self.waits.get(id)
        return self.jobs[id] if wait is None else {**self.jobs[id], **_wait_json(wait, self.at)}


class PageStateReader:
    """Reads page states, and caches the parts that are expensive to read."""

    def __init__(self, sweeps: SweepCache) -> None:
        self._sweeps = sweeps
        self._has_driver = has_driver()
        # How often to read without a change in the database: times and GPU readings change too.
        self.idle_seconds = _DRIVER_SECONDS if self._has_driver else _IDLE_SECONDS
        min_seconds = _DRIVER_SECONDS if self._has_driver else 0.0
        self._counts: ThrottledCache[dict[str, int]] = ThrottledCache()
        self._gpus: ThrottledCache[tuple[list[GpuView], str | None]] = ThrottledCache(
            10.0, min_seconds
        )
        self._waits: ThrottledCache[dict[int, Wait]] = ThrottledCache(10.0, WAITS_SECONDS)

    def gpus_changed(self) -> None:
        """A user changed a GPU: the next state shows it, however recent the last reading is."""
        self._gpus.invalidate("")

    def read(self, queue: Queue, before: PageState | None) -> PageState:
        db = queue.db
        # Outside of the read transaction: this may save the summaries of reports that it reads.
        sweeps = {str(sweep["name"]): sweep for sweep in self._sweeps.newest(db)}
        gpus = self._gpus.get("", lambda: load_gpu_views(db, queue.settings))
        gpu_views, gpu_error = gpus
        with db.reading():
            running = job_queries.jobs_in_states(db, STARTED, RUNNING)
            ready = history.ready(db, READY + UNREADY)
            unready = history.unready(db, READY + UNREADY)
            ready = ready[: READY + max(0, UNREADY - len(unready))]
            unready = unready[: READY + UNREADY - len(ready)]
            elsewhere = history.on_backends(db, ELSEWHERE)
            waiting = job_queries.jobs(db, ready + unready + elsewhere)
            shown = (*before.running, *before.recent) if before is not None else ()
            recent = job_queries.jobs(db, history.recently_ended(db, RECENT, shown))
            rows = [*running, *waiting, *recent]
            jobs = {row.id: views.job_json(db, queue.settings, row) for row in rows}
            reasons = self._reasons(queue, waiting, ready, gpus)
            host = load_host_view(db, queue.settings).as_json()
            known_backends = [backend_json(row) for row in backends.backends(db)]
        daemon = views.daemon_facts(db, queue.settings)
        return PageState(
            at=time.time(),
            jobs=jobs,
            serialized={id: json.dumps(job) for id, job in jobs.items()},
            running=tuple(row.id for row in running),
            queue=tuple(row.id for row in waiting),
            recent=tuple(row.id for row in recent),
            waits=reasons,
            gpus=[gpu.as_json() for gpu in gpu_views],
            gpu_error=gpu_error,
            backends=known_backends,
            host=host,
            counts=self._counts.get("", lambda: job_queries.counts(db)),
            sweeps=sweeps,
            daemon={"pid": daemon["pid"], "draining": daemon["draining"]},
        )

    def _reasons(
        self,
        queue: Queue,
        rows: list[JobRow],
        ready: list[int],
        gpus: tuple[list[GpuView], str | None],
    ) -> dict[int, Wait]:
        """Why each of these jobs waits, from the cache; a job missing there refreshes the cache."""

        def read_waits() -> dict[int, Wait]:
            return waits(queue, rows, ready, gpus)

        known = self._waits.get("", read_waits)
        if not self._has_driver and any(row.id not in known for row in rows):
            self._waits.invalidate("")
            known = self._waits.get("", read_waits)
        ready_ids = set(ready)
        return {
            row.id: known.get(row.id, _UNKNOWN)._replace(ready=row.id in ready_ids) for row in rows
        }

    def seconds_until_fresh(self) -> float:
        """Seconds until all values that came from a cache can be read again; 0 when none did."""
        caches = (self._counts, self._gpus, self._waits, self._sweeps)
        return max(cache.seconds_until_fresh() for cache in caches)


def _wait_json(wait: Wait, now: float) -> dict[str, object]:
    seconds = None if wait.starts_at is None else max(0.0, round(wait.starts_at - now, 1))
    return {
        "why": wait.why,
        "starts_in": seconds,
        "start_error": wait.start_error,
        "ready": wait.ready,
    }


def overview(
    state: PageState, event: int, read_only: bool, default_backend: str
) -> dict[str, object]:
    return {
        "now": views.iso(state.at),
        "event_id": event,
        "read_only": read_only,
        "user": user_name(os.geteuid()),
        "host": os.uname().nodename,
        "daemon": state.daemon,
        "gpus": state.gpus,
        "gpu_error": state.gpu_error,
        "backends": state.backends,
        "resources": state.host,
        "default_backend": default_backend,
        "running": [state.job(id) for id in state.running],
        "queue": [state.job(id) for id in state.queue],
        "recent": [state.job(id) for id in state.recent],
        "counts": state.counts,
        "sweeps": list(state.sweeps.values()),
    }


def difference(old: PageState, new: PageState) -> dict[str, object] | None:
    """The content of the event that turns `old` into `new`; None when nothing changed."""
    changed = [
        id
        for id, text in new.serialized.items()
        if old.serialized.get(id) != text or (id in new.waits) != (id in old.waits)
    ]
    removed = [id for id in old.jobs if id not in new.jobs]
    sweeps = [sweep for name, sweep in new.sweeps.items() if old.sweeps.get(name) != sweep]
    removed_sweeps = [name for name in old.sweeps if name not in new.sweeps]
    sent = set(changed)
    changed_waits = {}
    for id, wait in new.waits.items():
        if id in sent:
            continue
        if _differs(old.waits[id], wait):
            changed_waits[id] = _wait_json(wait, new.at)
        else:
            new.waits[id] = old.waits[id]  # what clients have; small changes add up
    is_same = (
        old.gpus, old.gpu_error, old.counts, old.daemon, old.queue, old.backends, old.host
    ) == (
        new.gpus, new.gpu_error, new.counts, new.daemon, new.queue, new.backends, new.host
    )  # fmt: skip
    if is_same and not (changed or removed or sweeps or removed_sweeps or changed_waits):
        return None
    content: dict[str, object] = {
        "now": views.iso(new.at),
        "counts": new.counts,
        "gpus": new.gpus,
        "gpu_error": new.gpu_error,
        "resources": new.host,
        "daemon": new.daemon,
        "jobs": [new.job(id) for id in changed],
        "removed": removed,
        "sweeps": sweeps,
        "removed_sweeps": removed_sweeps,
        "waits": changed_waits,
    }
    if old.queue != new.queue:
        content["queue"] = list(new.queue)
    if old.backends != new.backends:  # a cluster may have thousands of nodes
        content["backends"] = new.backends
    return content


def _differs(old: Wait, new: Wait) -> bool:
    """Whether clients need an update; a start time that moved by a few seconds does not count."""
    if (old.ready, old.start_error) != (new.ready, new.start_error):
        return True
    if old.why != new.why or old.starts_at is None or new.starts_at is None:
        return (old.why, old.starts_at is None) != (new.why, new.starts_at is None)
    return abs(old.starts_at - new.starts_at) > 5.0
