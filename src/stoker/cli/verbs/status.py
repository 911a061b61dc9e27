"""`stoker status` and plain `stoker`: GPUs and their jobs, then waiting jobs."""

from __future__ import annotations

import time

from stoker.cli.open_queue import open_queue
from stoker.cli.output import plural, print_json, table
from stoker.cli.verbs.ls import (
    COUNT_LIMIT,
    elapsed,
    jobs_table,
    no_daemon,
    progress_json,
    progress_words,
    queue_view,
    summary,
)
from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.client.views.host import load_host_view
from stoker.client.views.why import host_problems
from stoker.engine.devices.discovery import has_driver
from stoker.engine.model import Device
from stoker.engine.store import job_queries, meta
from stoker.engine.store.device_settings import device_settings
from stoker.errors import UsageError
from stoker.features import call
from stoker.features.backends import store as backends
from stoker.states import ACTIVE, WAITING
from stoker.text.command_line import Option, Parsed, Verb
from stoker.text.commands.shell_words import display

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERB = Verb(
    "status",
    "[status] [OPTIONS]",
    "Show GPUs, running jobs with their progress, newest metric and likely end (ETA), the first"
    " waiting jobs, and the number of jobs in each state.",
    (
        Option("-w --watch", "refresh until Ctrl-C; with --json, print a line for each change"),
        Option(
            "--prometheus",
            "print metrics of jobs, GPUs, host and daemon for Prometheus, or write them to FILE",
            "FILE",
            optional=True,
        ),
    ),
    (
        ("stoker", ""),
        ("stoker status --json", ""),
        ("stoker status --prometheus=/var/lib/node_exporter/stoker.prom", "e.g. by cron"),
    ),
)
_SHOWN = 10


def run(parsed: Parsed) -> int:
    queue = open_queue()
    if parsed["prometheus"] is not None:
        for name in ("json", "watch"):
            if parsed[name]:
                raise UsageError(f"`--prometheus` and `--{name}` exclude each other")
        return _write_metrics(queue, parsed["prometheus"])
    if parsed["watch"]:
        from stoker.cli.verbs.watch import watch

        return watch(
            queue, lambda room: render(queue), (lambda: _as_json(queue)) if parsed["json"] else None
        )
    if parsed["json"]:
        print_json(**_as_json(queue, has_progress=True))
    else:
        print(render(queue))
    return 0


def _write_metrics(queue: Queue, path: str) -> int:
    """Print metrics, or replace a file: a reader sees either the old or the new text."""
    import os

    text = call("metrics_text", queue.db, queue.settings)
    if not path:
        print(text, end="")
        return 0
    new = f"{path}.{os.getpid()}.new"
    try:
        with open(new, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(new, path)
    except OSError as error:
        if os.path.exists(new):
            os.unlink(new)
        raise UsageError(f"cannot write `{path}`: {error.strerror}") from None
    return 0


def render(queue: Queue) -> str:
    now = time.time()
    active = job_queries.jobs_in_states(queue.db, ACTIVE, 500)
    parts = []
    waiting = _waiting(queue)
    view = queue_view(queue, waiting)
    devices, text = _devices(queue, active, now, {} if view is None else view.reserved_for())
    if text:
        parts.append(text)
    remote = [job for job in active if job.request.backend]
    cpu_jobs = [job for job in active if not job.devices and not job.request.backend]
    if cpu_jobs or not devices:
        slots = meta.get_meta(queue.db, "cpu_slots")
        lines = [(job.id, elapsed(job, now), _line(queue, job, now)) for job in cpu_jobs[:_SHOWN]]
        title = f"CPU JOB{'S' if slots is None else f'S (of {slots})'}"
        parts.append(
            table((title, "TIME", "COMMAND"), lines) if lines else "no GPUs, no running jobs"
        )
    if reserved := load_host_view(queue.db, queue.settings).words():
        parts.append(reserved)
    if remote:
        running = [job for job in remote if job.state != "submitted"]
        places = [
            (views.place_words(job), elapsed(job, now), _line(queue, job, now))
            for job in running[:_SHOWN]
        ]
        hidden = len(running) - _SHOWN
        parts.append(table(("BACKEND", "TIME", "JOB"), places))
        if hidden > 0:
            parts[-1] += f"\n{plural(hidden, 'more job')} on backends"
    counts = job_queries.counts_up_to(queue.db, COUNT_LIMIT)
    parts.append(jobs_table(queue, waiting, view) if waiting else "no waiting jobs")
    hidden = sum(counts.get(state, 0) for state in (*WAITING, "submitted")) - len(waiting)
    if waiting and hidden > 0:
        parts[-1] += f"\n{plural(hidden, 'more waiting job')} (see stoker ls)"
    if counts:
        parts.append(summary(counts))
    parts += _notices(queue, counts)
    return "\n\n".join(parts)


def _devices(
    queue: Queue, active: list[job_queries.JobRow], now: float, reserved: dict[int, int]
) -> tuple[tuple[Device, ...], str]:
    """`reserved`: the waiting jobs for which GPUs are kept, by GPU."""
    if not queue.settings.devices and has_driver():
        from stoker.client.views.gpus import load_gpu_views

        gpus, error = load_gpu_views(queue.db, queue.settings)
        rows: list[tuple[object, ...]] = []
        for gpu in gpus:
            cells = [(elapsed(job, now), _line(queue, job, now)) for job in gpu.jobs]
            cells += [("-", f"({words})") for words in gpu.others_words()]
            if gpu.closed is not None and (gpu.jobs or not cells):
                cells.append(("-", f"({gpu.closed})"))
            if gpu.device.number in reserved:
                cells.append(("-", f"(reserved for {reserved[gpu.device.number]})"))
            cells = cells or [("-", "-")]
            facts = (gpu.device.visible, gpu.device.model, gpu.memory_words(), gpu.load_words())
            rows.append((*facts, *cells[0]))
            rows += [("", "", "", "", *cell) for cell in cells[1:]]
        text = table(("GPU", "MODEL", "MEMORY", "UTIL", "TIME", "JOB"), rows) if rows else ""
        if error is not None:
            text = f"{text}\n{error}".strip()
        return tuple(gpu.device for gpu in gpus), text
    devices = queue.devices()
    drained = {uuid for uuid, is_drained, *_ in device_settings(queue.db) if is_drained}
    rows = []
    for device in devices:
        jobs = [job for job in active if device.number in job.devices]
        cells = [(elapsed(job, now), _line(queue, job, now)) for job in jobs]
        if device.uuid in drained:
            cells.append(("-", "(drained)"))
        if device.number in reserved:
            cells.append(("-", f"(reserved for {reserved[device.number]})"))
        cells = cells or [("-", "-")]
        rows += [(device.visible, device.model or "-", *cell) for cell in cells]
    return devices, table(("GPU", "MODEL", "TIME", "JOB"), rows) if rows else ""


def _waiting(queue: Queue) -> list[job_queries.JobRow]:
    """The first jobs of the queue, then jobs that wait for something other than a GPU."""
    from stoker.client.views.why import queue_order

    ready = job_queries.jobs(queue.db, queue_order(queue.db, _SHOWN))
    known = {row.id for row in ready}
    others = job_queries.jobs_in_states(queue.db, WAITING, _SHOWN + len(ready))
    others += job_queries.jobs_in_states(queue.db, ("submitted",), _SHOWN)
    return [*ready, *(row for row in others if row.id not in known)][:_SHOWN]


def _line(queue: Queue, job: job_queries.JobRow, now: float) -> str:
    """`7 [40%, loss 0.31, ETA 12m30s] python train.py`."""
    words = progress_words(queue, job, now)
    known = f"[{words}] " if words else ""
    return f"{job.id} {known}{job.name or display(job.argv, job.shell)}"


def _notices(queue: Queue, counts: dict[str, int]) -> list[str]:
    missing = no_daemon(queue, counts)
    notices = [missing] if missing else []
    notices += host_problems(queue.db, queue.settings)
    notices += [
        f"backend {row.name}: {row.problem}" for row in backends.backends(queue.db) if row.problem
    ]
    if meta.is_draining(queue.db):
        notices.append("drained: no job starts before `stoker daemon resume`")
    return notices


def _as_json(queue: Queue, *, has_progress: bool = False) -> dict[str, Any]:
    """`has_progress`: with the progress of running jobs, which changes all the time."""
    from stoker.client.views.why import queue_order

    active = job_queries.jobs_in_states(queue.db, ACTIVE, 500)
    more = {"progress": progress_json(queue, active)} if has_progress else {}
    return dict(
        daemon=views.daemon_facts(queue.db, queue.settings),
        devices=[
            {
                "index": d.number,
                "visible": d.visible,
                "slots": d.slots,
                "model": d.model,
                "uuid": d.uuid,
                "jobs": [job.id for job in active if d.number in job.devices],
            }
            for d in queue.devices()
        ],
        host=load_host_view(queue.db, queue.settings).as_json(),
        running=[views.job_json(queue.db, queue.settings, job) for job in active],
        waiting=[
            views.job_json(queue.db, queue.settings, job_queries.job(queue.db, job))
            for job in queue_order(queue.db, 50)
        ],
        counts=job_queries.counts(queue.db),
        problems=host_problems(queue.db, queue.settings),
        **more,
    )
