"""The state of queue, GPUs and daemon as metrics for operators (Prometheus)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from stoker.client.views.gpus import GpuView, load_gpu_views
from stoker.client.views.host import load_host_view
from stoker.engine.daemon.status import daemon_pid, problem, why_not_running
from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.engine.store.idle_counts import idle_count
from stoker.features.history.gpu_history import load_gpu_history
from stoker.record import Record
from stoker.settings import Settings
from stoker.states import STATES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(Record):
    """One metric with its values, each with labels; values that are None are left out."""

    name: str
    kind: str  # gauge or counter
    help: str
    values: tuple[tuple[Mapping[str, object], float | None], ...]


def format_metrics(metrics: Iterable[Metric]) -> str:
    r"""Return the text of metrics; those without values are left out.

    >>> jobs = Metric("stoker_jobs", "gauge", "Jobs by state.", (({"state": 'a"b'}, 2),))
    >>> print(format_metrics([jobs]), end="")
    # HELP stoker_jobs Jobs by state.
    # TYPE stoker_jobs gauge
    stoker_jobs{state="a\"b"} 2
    """
    lines = []
    for metric in metrics:
        values = [(labels, value) for labels, value in metric.values if value is not None]
        if values:
            lines += [
                f"# HELP {metric.name} {metric.help}",
                f"# TYPE {metric.name} {metric.kind}",
                *(f"{metric.name}{_label_text(labels)} {value:.15g}" for labels, value in values),
            ]
    return "".join(f"{line}\n" for line in lines)


def _label_text(labels: Mapping[str, object]) -> str:
    words = (f'{name}="{_escaped(str(value))}"' for name, value in labels.items())
    text = ",".join(words)
    return f"{{{text}}}" if text else ""


def _escaped(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# Idle time and its reasons are of this time before now.
_HISTORY_SECONDS = 3600.0


def metrics_text(db: Database, settings: Settings) -> str:
    """All metrics, in the text format of Prometheus."""
    return format_metrics(
        [*_of_jobs(db), *_of_gpus(db, settings), *_of_host(db, settings), *_of_daemon(db, settings)]
    )


def _of_jobs(db: Database) -> Iterator[Metric]:
    counts = job_queries.counts(db)
    values = [({"state": state}, counts.get(state, 0)) for state in STATES]
    yield Metric("stoker_jobs", "gauge", "Jobs in the queue by state.", tuple(values))
    since = job_queries.oldest_queued(db)
    waited = 0.0 if since is None else max(0.0, time.time() - since)
    text = "Time since the oldest queued job was submitted."
    yield Metric("stoker_oldest_queued_seconds", "gauge", text, (({}, waited),))


def _of_gpus(db: Database, settings: Settings) -> Iterator[Metric]:
    views, error = load_gpu_views(db, settings)
    text = "Whether the driver of the GPUs answers."
    yield Metric("stoker_gpu_driver_up", "gauge", text, (({}, float(error is None)),))
    rows = [(_labels(view), view.as_json()) for view in views]
    for key, name, text in (
        ("memory_bytes", "stoker_gpu_memory_bytes", "Memory of the GPU."),
        ("memory_used_bytes", "stoker_gpu_memory_used_bytes", "Memory in use, by all processes."),
        ("utilisation_percent", "stoker_gpu_utilization_percent", "Utilization of the GPU."),
        ("power_watts", "stoker_gpu_power_watts", "Power of the GPU."),
        ("temperature_celsius", "stoker_gpu_temperature_celsius", "Temperature of the GPU."),
    ):
        values = tuple((labels, row[key]) for labels, row in rows)
        yield Metric(name, "gauge", text, values)
    text = "The state of the GPU, in the label."
    states = tuple(({**_labels(view), "state": view.state}, 1) for view in views)
    yield Metric("stoker_gpu_state", "gauge", text, states)
    text = "Jobs of this queue on the GPU."
    running = tuple((_labels(view), len(view.jobs)) for view in views)
    yield Metric("stoker_gpu_jobs", "gauge", text, running)
    text = "GPU memory that a running job uses."
    yield Metric("stoker_job_gpu_memory_bytes", "gauge", text, tuple(_job_memory(views)))
    text = "GPU memory of processes that are not of this queue, by user."
    yield Metric("stoker_other_gpu_memory_bytes", "gauge", text, tuple(_other_memory(views)))
    yield from _of_history(db, settings)


def _labels(view: GpuView) -> dict[str, object]:
    device = view.device
    return {"gpu": device.visible, "uuid": device.uuid, "model": device.model}


def _job_memory(views: Iterable[GpuView]) -> Iterator[tuple[dict[str, object], float]]:
    for view in views:
        used = {} if view.occupancy is None else view.occupancy.ours
        for job in view.jobs:
            labels = {"gpu": view.device.visible, "job": job.id, "name": job.name or ""}
            if job.attempt in used:
                yield labels, used[job.attempt]


def _other_memory(views: Iterable[GpuView]) -> Iterator[tuple[dict[str, object], float]]:
    for view in views:
        by_user: dict[str, int] = {}
        for process in () if view.occupancy is None else view.occupancy.other_processes:
            by_user[process.user] = by_user.get(process.user, 0) + process.memory
        for user, memory in sorted(by_user.items()):
            yield {"gpu": view.device.visible, "user": user}, memory


def _of_history(db: Database, settings: Settings) -> Iterator[Metric]:
    history = load_gpu_history(db, settings, _HISTORY_SECONDS)
    did = []
    for gpu in history:
        spent = gpu.time
        for activity, seconds in (
            ("jobs", spent.busy),
            ("other_users", spent.others),
            ("no_work", spent.idle),
            ("idle_with_jobs_waiting", spent.waiting),
            ("not_running", spent.off),
        ):
            did.append(({"gpu": gpu.visible, "activity": activity}, seconds))
    text = "What the GPU did in the last hour, in seconds."
    yield Metric("stoker_gpu_last_hour_seconds", "gauge", text, tuple(did))
    text = "Why the GPU was idle in the last hour while jobs waited, in seconds."
    reasons = tuple(
        ({"gpu": gpu.visible, "reason": reason}, seconds)
        for gpu in history
        for reason, seconds in gpu.reasons()
    )
    yield Metric("stoker_gpu_idle_reason_seconds", "gauge", text, reasons)


def _of_host(db: Database, settings: Settings) -> Iterator[Metric]:
    host = load_host_view(db, settings)
    for name, text, value in (
        ("stoker_host_cores", "Cores of the host.", host.resources.cores),
        ("stoker_host_cores_reserved", "Cores that running jobs reserve.", host.cores),
        ("stoker_host_memory_bytes", "Memory of the host.", host.resources.memory),
        ("stoker_host_memory_reserved_bytes", "Memory that running jobs reserve.", host.memory),
    ):
        yield Metric(name, "gauge", text, (({}, value),))


def _of_daemon(db: Database, settings: Settings) -> Iterator[Metric]:
    folder = settings.state_dir
    text = "Whether the daemon runs and is not suspended."
    is_up = float(why_not_running(folder) is None)
    yield Metric("stoker_daemon_up", "gauge", text, (({}, is_up),))
    why = problem(folder) if daemon_pid(folder) is not None else None
    text = "1 while the daemon cannot start or record jobs, with the reason."
    values = (({} if why is None else {"reason": why}, float(why is not None)),)
    yield Metric("stoker_daemon_problem", "gauge", text, values)
    idle = idle_count(db)
    text = "Time in which a GPU was idle although a waiting job could have run: a defect of Stoker."
    name = "stoker_idle_with_runnable_job_seconds_total"
    yield Metric(name, "counter", text, (({}, idle.seconds),))
