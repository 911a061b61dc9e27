"""`stoker status` and plain `stoker`: GPUs and their jobs, then waiting jobs."""

from __future__ import annotations

import time

from stoker.cli.open_queue import open_queue
from stoker.cli.output import plural, print_json, table
from stoker.cli.verbs.ls import COUNT_LIMIT, elapsed, jobs_table, no_daemon, summary
from stoker.client import views
from stoker.client.host_views import load_host_view
from stoker.client.queue import Queue
from stoker.client.wait_reasons import host_problems
from stoker.core.formats.command_line import Option, Parsed, Verb
from stoker.core.formats.shell_words import display
from stoker.core.model import Device
from stoker.core.states import ACTIVE, WAITING
from stoker.devices.discovery import has_driver
from stoker.store import backends, job_queries, meta
from stoker.store.device_settings import device_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERB = Verb(
    "status",
    "[status] [OPTIONS]",
    "Show GPUs, running jobs, the first waiting jobs, and the number of jobs in each state.",
    (Option("-w --watch", "refresh until Ctrl-C; with --json, print a line for each change"),),
    (("stoker", ""), ("stoker status --json", "")),
)
_SHOWN = 10


def run(parsed: Parsed) -> int:
    queue = open_queue()
    if parsed["watch"]:
        from stoker.cli.verbs.watch import watch

        return watch(queue, lambda room: render(queue),
                     (lambda: _as_json(queue)) if parsed["json"] else None)  # fmt: skip
    if parsed["json"]:
        print_json(**_as_json(queue))
    else:
        print(render(queue))
    return 0


def render(queue: Queue) -> str:
    now = time.time()
    active = job_queries.jobs_in_states(queue.db, ACTIVE, 500)
    parts = []
    devices, text = _devices(queue, active, now)
    if text:
        parts.append(text)
    remote = [job for job in active if job.request.backend]
    cpu_jobs = [job for job in active if not job.devices and not job.request.backend]
    if cpu_jobs or not devices:
        slots = meta.get_meta(queue.db, "cpu_slots")
        lines = [(job.id, elapsed(job, now), _line(job)) for job in cpu_jobs[:_SHOWN]]
        title = f"CPU JOB{'S' if slots is None else f'S (of {slots})'}"
        parts.append(
            table((title, "TIME", "COMMAND"), lines) if lines else "no GPUs, no running jobs"
        )
    if reserved := load_host_view(queue.db, queue.settings).words():
        parts.append(reserved)
    if remote:
        running = [job for job in remote if job.state != "submitted"]
        places = [(views.place_words(job), elapsed(job, now), _line(job)) for job in running]
        hidden = len(running) - _SHOWN
        parts.append(table(("BACKEND", "TIME", "JOB"), places[:_SHOWN]))
        if hidden > 0:
            parts[-1] += f"\n{plural(hidden, 'more job')} on backends"
    counts = job_queries.counts_up_to(queue.db, COUNT_LIMIT)
    waiting = _waiting(queue)
    parts.append(jobs_table(queue, waiting) if waiting else "no waiting jobs")
    if counts:
        parts.append(summary(counts))
    parts += _notices(queue, counts)
    return "\n\n".join(parts)


def _devices(
    queue: Queue, active: list[job_queries.JobRow], now: float
) -> tuple[tuple[Device, ...], str]:
    if not queue.settings.devices and has_driver():
        from stoker.client.gpu_views import load_gpu_views

        gpus, error = load_gpu_views(queue.db, queue.settings)
        rows: list[tuple[object, ...]] = []
        for gpu in gpus:
            cells = [(elapsed(job, now), _line(job)) for job in gpu.jobs]
            cells += [("-", f"({words})") for words in gpu.others_words()]
            if gpu.closed is not None and (gpu.jobs or not cells):
                cells.append(("-", f"({gpu.closed})"))
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
        cells = [(elapsed(job, now), _line(job)) for job in jobs]
        if device.uuid in drained:
            cells.append(("-", "(drained)"))
        cells = cells or [("-", "-")]
        rows += [(device.visible, device.model or "-", *cell) for cell in cells]
    return devices, table(("GPU", "MODEL", "TIME", "JOB"), rows) if rows else ""


def _waiting(queue: Queue) -> list[job_queries.JobRow]:
    """The first jobs of the queue, then jobs that wait for something other than a GPU."""
    from stoker.client.wait_reasons import queue_order

    ready = job_queries.jobs(queue.db, queue_order(queue.db, _SHOWN))
    known = {row.id for row in ready}
    others = job_queries.jobs_in_states(queue.db, WAITING, _SHOWN + len(ready))
    others += job_queries.jobs_in_states(queue.db, ("submitted",), _SHOWN)
    return [*ready, *(row for row in others if row.id not in known)][:_SHOWN]


def _line(job: job_queries.JobRow) -> str:
    return f"{job.id} {job.name or display(job.argv, job.shell)}"


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


def _as_json(queue: Queue) -> dict[str, Any]:
    from stoker.client.wait_reasons import queue_order

    active = job_queries.jobs_in_states(queue.db, ACTIVE, 500)
    return dict(
        daemon=views.daemon_facts(queue.db, queue.settings),
        devices=[
            {"index": d.number, "visible": d.visible, "slots": d.slots, "model": d.model,
             "uuid": d.uuid, "jobs": [job.id for job in active if d.number in job.devices]}
            for d in queue.devices()
        ],
        host=load_host_view(queue.db, queue.settings).as_json(),
        running=[views.job_json(queue.db, queue.settings, job) for job in active],
        waiting=[views.job_json(queue.db, queue.settings, job_queries.job(queue.db, job))
                 for job in queue_order(queue.db, 50)],
        counts=job_queries.counts(queue.db),
        problems=host_problems(queue.db, queue.settings),
    )  # fmt: skip
