"""What the web UI and `stoker top` show at one moment.

The set is bounded: running jobs, the head of the queue, and the jobs that finished last. It is read
with the functions behind `stoker ls --json`, in one read transaction, so it is consistent. Backends
are shown as their drivers last recorded them; nothing here contacts Slurm or Ray.
"""

from __future__ import annotations

import json
import time
from typing import Protocol

from stoker.client.queue import Queue
from stoker.client.throttled_cache import ThrottledCache
from stoker.client.views import job as views
from stoker.client.views.gpus import GpuView, load_gpu_views
from stoker.client.views.host import load_host_view
from stoker.client.views.job_waits import Wait, Waits, waits
from stoker.client.views.running_jobs import RunView, run_views
from stoker.client.views.why import queue_order
from stoker.engine.devices.discovery import has_driver
from stoker.engine.store import history, job_queries
from stoker.engine.store.database import Database
from stoker.engine.store.job_queries import JobRow
from stoker.features import call
from stoker.record import Record
from stoker.states import STARTED

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
_NO_RUN = RunView()


class LiveState(Record):
    at: float
    jobs: dict[int, dict[str, object]]
    serialized: dict[int, str]  # as JSON text, to compare versions of a job
    running: tuple[int, ...]
    queue: tuple[int, ...]  # in the order of the policy; then jobs that cannot start yet
    recent: tuple[int, ...]
    waits: dict[int, Wait]  # of all jobs in `queue`
    runs: dict[int, RunView]  # of all jobs in `running`
    gpus: list[dict[str, object]]
    gpu_error: str | None  # why the GPUs cannot be read
    backends: list[dict[str, object]]
    host: dict[str, object]  # cores, memory and counters
    counts: dict[str, int]
    sweeps: dict[str, dict[str, object]]
    daemon: dict[str, object]

    def job(self, id: int) -> dict[str, object]:
        """As in `stoker ls --json`, with why a waiting job waits and how far a running one is."""
        wait, run = self.waits.get(id), self.runs.get(id)
        if run is not None:
            return {**self.jobs[id], "run": run.as_json(self.at)}
        return self.jobs[id] if wait is None else {**self.jobs[id], **wait_json(wait, self.at)}


class Sweeps(Protocol):
    """The newest sweeps (features/sweeps/sweeps_view.py), which the reader of the state gets."""

    def newest(self, db: Database) -> list[dict[str, object]]: ...

    def seconds_until_fresh(self) -> float: ...


class LiveStateReader:
    """Reads page states, and caches the parts that are expensive to read."""

    def __init__(self, sweeps: Sweeps) -> None:
        self._sweeps = sweeps
        self._has_driver = has_driver()
        # How often to read without a change in the database: times and GPU readings change too.
        self.idle_seconds = _DRIVER_SECONDS if self._has_driver else _IDLE_SECONDS
        min_seconds = _DRIVER_SECONDS if self._has_driver else 0.0
        self._counts: ThrottledCache[dict[str, int]] = ThrottledCache()
        self._gpus: ThrottledCache[tuple[list[GpuView], str | None]] = ThrottledCache(
            10.0, min_seconds
        )
        self._runs: ThrottledCache[dict[int, RunView]] = ThrottledCache(10.0, WAITS_SECONDS)
        self._waits: ThrottledCache[Waits] = ThrottledCache(10.0, WAITS_SECONDS)

    def gpus_changed(self) -> None:
        """A user changed a GPU: the next state shows it, however recent the last reading is."""
        self._gpus.invalidate("")

    def read(self, queue: Queue, before: LiveState | None) -> LiveState:
        db = queue.db
        # Outside of the read transaction: this may save the summaries of reports that it reads.
        sweeps = {str(sweep["name"]): sweep for sweep in self._sweeps.newest(db)}
        gpus = self._gpus.get("", lambda: load_gpu_views(db, queue.settings))
        gpu_views, gpu_error = gpus
        with db.reading():
            running = job_queries.jobs_in_states(db, STARTED, RUNNING)
            ready = queue_order(db, READY + UNREADY)
            unready = history.unready(db, READY + UNREADY)
            ready = ready[: READY + max(0, UNREADY - len(unready))]
            unready = unready[: READY + UNREADY - len(ready)]
            elsewhere = history.on_backends(db, ELSEWHERE)
            waiting = job_queries.jobs(db, ready + unready + elsewhere)
            shown = (*before.running, *before.recent) if before is not None else ()
            recent = job_queries.jobs(db, history.recently_ended(db, RECENT, shown))
            rows = [*running, *waiting, *recent]
            jobs = {row.id: views.job_json(db, queue.settings, row) for row in rows}
            reasons, reserved = self._reasons(queue, waiting, ready, gpus)
            host = load_host_view(db, queue.settings).as_json()
            known_backends = call("backends_json", db) or []
        daemon = views.daemon_facts(db, queue.settings)
        return LiveState(
            at=time.time(),
            jobs=jobs,
            serialized={id: json.dumps(job) for id, job in jobs.items()},
            running=tuple(row.id for row in running),
            queue=tuple(row.id for row in waiting),
            recent=tuple(row.id for row in recent),
            waits=reasons,
            runs=self._read_runs(queue, running),
            gpus=[
                gpu._replace(reserved_for=reserved.get(gpu.device.number)).as_json()
                for gpu in gpu_views
            ],
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
    ) -> tuple[dict[int, Wait], dict[int, int]]:
        """Why each of these jobs waits, from the cache; a job missing there refreshes the cache.

        Also the jobs for which GPUs are reserved, by GPU; none that has left the queue.
        """

        def read_waits() -> Waits:
            return waits(queue, rows, ready, gpus)

        known = self._waits.get("", read_waits)
        if not self._has_driver and any(row.id not in known.by_job for row in rows):
            self._waits.invalidate("")
            known = self._waits.get("", read_waits)
        ready_ids = set(ready)
        found = {
            row.id: known.by_job.get(row.id, _UNKNOWN)._replace(ready=row.id in ready_ids)
            for row in rows
        }
        return found, {gpu: job for gpu, job in known.reserved.items() if job in found}

    def _read_runs(self, queue: Queue, rows: list[JobRow]) -> dict[int, RunView]:
        """Progress and usage of running jobs, from the cache where a job is in it."""
        known = self._runs.get("", lambda: run_views(queue.db, queue.settings, rows))
        return {row.id: known.get(row.id, _NO_RUN) for row in rows}

    def seconds_until_fresh(self) -> float:
        """Seconds until all values that came from a cache can be read again; 0 when none did."""
        caches = (self._counts, self._gpus, self._waits, self._runs, self._sweeps)
        return max(cache.seconds_until_fresh() for cache in caches)


def wait_json(wait: Wait, now: float) -> dict[str, object]:
    seconds = None if wait.starts_at is None else max(0.0, round(wait.starts_at - now, 1))
    return {
        "why": wait.why,
        "why_short": wait.short,
        "starts_in": seconds,
        "ready": wait.ready,
    }
