"""`stoker show`: show everything about a job."""

from __future__ import annotations

import time

from stoker.cli.open_queue import open_queue
from stoker.cli.output import plural, print_json, table
from stoker.cli.verbs.ls import elapsed, progress_words
from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.engine.model import MPS
from stoker.engine.policy.explain import needs
from stoker.engine.profiles.estimates import Estimate
from stoker.engine.profiles.gpu_memory import budget
from stoker.engine.profiles.sharing_advice import sharing_advice
from stoker.engine.store import arrays, job_queries, machines
from stoker.engine.store.job_queries import AttemptRow, JobRow
from stoker.engine.store.profiles import shared_speeds
from stoker.errors import UsageError
from stoker.features import call
from stoker.features.code import store as code_states
from stoker.features.code.views import code_words, machine_words
from stoker.features.notes import store as notes
from stoker.features.sweeps import store as sweeps
from stoker.settings import cores
from stoker.states import STARTED, WAITING
from stoker.text.command_line import Option, Parsed, Verb
from stoker.text.commands.shell_words import display
from stoker.text.durations import format_duration
from stoker.text.sizes import format_size
from stoker.text.terminal import printable

# Fields in an `edited` event, as users know them.
_EDITED = {
    "argv": "command",
    "shell": "command",
    "time_limit": "time limit",
    "request": "request",
    "eligible_at": "begin time",
    "cwd": "directory",
    "env": "environment",
    "after": "dependencies",
    "notify": "notifications",
}

VERB = Verb(
    "show",
    "show [--diff] JOB...",
    "Show everything about jobs: request, code, attempts, result, resource use, log and files.",
    (
        Option(
            "--diff",
            "print how the tracked files of the job's folder differed from their commit at submit",
        ),
    ),
    (
        ("stoker show 7", ""),
        ("stoker show @ --json", "the last submitted job as JSON"),
        ("stoker show 7 --diff | git apply", "repeats the changes of the code of job 7"),
    ),
    words="jobs",
)


def run(parsed: Parsed) -> int:
    if not parsed.words:
        raise UsageError(
            "no job given", "example: stoker show 7, or stoker show @ for the last job"
        )
    queue = open_queue()
    rows = job_queries.jobs(queue.db, queue.select(parsed.words))
    if parsed["diff"]:
        from stoker.features.code.diff_output import print_diffs

        return print_diffs(queue, rows, as_json=bool(parsed["json"]))
    if parsed["json"]:
        from stoker.features.results.reports.metric_cache import metrics_of, params_of

        found = [views.job_in_full(queue.db, queue.settings, row) for row in rows]
        for job, row in zip(found, rows, strict=True):
            job |= {"params": params_of(queue.db, row), "metrics": metrics_of(queue.settings, row)}
        print_json(jobs=found)
        return 0
    print("\n\n".join(_text(queue, row) for row in rows))
    return 0


def _trial(queue: Queue, row: JobRow) -> str:
    """`3 of sweep brave-otter: lr=0.1, seed=2`."""
    found = sweeps.of_job(queue.db, row.id) if row.sweep is not None else None
    if found is None:
        return ""
    import json

    point = json.loads(sweeps.point_of(queue.db, row.id) or "{}")
    params = ", ".join(f"{name}={text}" for name, (_, text) in point.items())
    return f"{found[1]} of sweep {found[0]}: {params}"


def _array(queue: Queue, row: JobRow) -> str:
    """`7_3: index 3 of 0-99, at most 8 jobs at once`."""
    words = views.array_words(row)
    if not words:
        return ""
    found = arrays.load(queue.db, row.batch or 0)
    if found is None:
        return words
    limit = f", at most {plural(found.most, 'job')} at once" if found.most is not None else ""
    return f"{words}: index {row.array_index} of {found.indexes}{limit}"


def _text(queue: Queue, row: JobRow) -> str:
    words = views.result_words(row, queue.db) or views.process_words(queue.db, row)
    if row.request.backend and not words:
        from stoker.features.backends.backend_reasons import unstarted_words

        words = unstarted_words(queue.db, row)
    out, err = views.log_paths(queue.settings, row)
    note = notes.note(queue.db, notes.JOB, row.id)
    lines = [
        ("job", f"{row.id}" + (f" ({row.name})" if row.name else "")),
        ("state", row.state + (f": {words}" if words else "")),
        ("command", display(row.argv, row.shell)),
        ("trial", _trial(queue, row)),
        ("array", _array(queue, row)),
        ("directory", row.cwd),
        ("code", _code(queue, row)),
        ("snapshot", row.snapshot_dir or row.snapshot or ""),
        ("GPUs", _gpus(row)),
        ("host", views.host_words(row)),
        ("runs on", _place(row)),
        ("options", " ".join(row.request.options)),
        ("priority", str(row.priority) if row.priority else ""),
        ("tags", ", ".join(job_queries.tags(queue.db, row.id))),
        ("star", "yes" if note.starred else ""),
        ("group", row.group or ""),
        (
            "after",
            ", ".join(
                f"{n}:{c}" + (" (met)" if m else "")
                for n, c, m in job_queries.dependencies(queue.db, row.id)
            ),
        ),
        ("limit", format_duration(row.time_limit) if row.time_limit is not None else ""),
        ("preemptible", _preemptible(row)),
        *((label, text or "yes") for label, text in views.settings_rows(row.settings)),
        ("submitted", _when(row.submitted_at)),
        ("not before", _when(row.eligible_at) if row.state in WAITING else ""),
        ("started", _when(row.started_at)),
        ("ended", _when(row.ended_at)),
        ("duration", elapsed(row, time.time())),
        ("used", _used(row)),
        ("progress", progress_words(queue, row, time.time())),
        ("GPU use", _used_of_gpu(row)),
        *_running_use(queue, row),
        ("ran with", _machine(queue, row)),
        ("profile", _profile(queue, row)),
        ("log", out or ""),
        ("stderr", err or ""),
        ("files", _files(queue, row)),
        ("rerun of", str(row.rerun_of or "")),
    ]
    text = "\n".join(
        f"{key:<11} {printable(value)}" for key, value in lines if value and value != "-"
    )
    if note.text:
        text += f"\n{note_block(note.text)}"
    history = job_queries.attempts(queue.db, row.id)
    if len(history) > 1:
        header = ("attempt", "started", "duration", "GPU", "result")
        text += "\n" + table(header, [_attempt(attempt) for attempt in history])
    for at, kind, data in job_queries.events(queue.db, row.id):
        text += f"\n{_when(at)}  {kind} {printable(_in_words(kind, data or ''))}".rstrip()
    return text


def _files(queue: Queue, row: JobRow) -> str:
    """What the job left in its output folder; "" if there is nothing."""
    import os

    folder = views.output_folder(queue.settings, row)
    if not os.path.isdir(folder):
        return ""
    words = call("artifact_words", queue.settings, row)
    return f"{folder}: {words}" if words else ""


def note_block(note: str) -> str:
    """A note with the indent of other values: its first line after the word `note`."""
    lines = [printable(line) for line in note.split("\n")]
    return "\n".join(f"{'' if at else 'note':<12}{line}".rstrip() for at, line in enumerate(lines))


def _code(queue: Queue, row: JobRow) -> str:
    """The state of the code at submit; "" if the folder was in no git repository."""
    code = code_states.of_job(queue.db, row.id)
    return "" if code is None else code_words(code)


def _machine(queue: Queue, row: JobRow) -> str:
    """Host, versions and GPU models of the newest attempt."""
    known = machines.of_attempts(queue.db, row.id)
    return machine_words(*known[max(known)]) if known else ""


def _preemptible(row: JobRow) -> str:
    if not row.request.preemptible:
        return ""
    return f"yes, gave way {plural(row.preemptions, 'time')}" if row.preemptions else "yes"


def _attempt(attempt: AttemptRow) -> tuple[object, ...]:
    took = end = "-"
    if attempt.started_at is not None:
        took = format_duration((attempt.ended_at or time.time()) - attempt.started_at)
    if attempt.ended_at is None and attempt.cause is None:
        end = "running"
    else:
        end = views.end_words(attempt.cause, attempt.status, attempt.detail)
        if attempt.detail and attempt.detail not in end:
            end += f": {attempt.detail}"
    devices = ",".join(map(str, attempt.devices)) or "-"
    if attempt.node is not None:
        devices = views.node_words(attempt.node, attempt.gpus)
    return attempt.number, _when(attempt.started_at) or "-", took, devices, end


def _in_words(kind: str, data: str) -> str:
    if kind != "edited":
        return data
    return ", ".join(sorted({_EDITED.get(name, name) for name in data.split(", ")}))


def _place(row: JobRow) -> str:
    """The backend of a job, and its node there; "" for this host."""
    if not row.request.backend:
        return ""
    if row.node is None or row.state in WAITING:
        return row.request.backend
    return f"{row.request.backend}, node {views.node_words(row.node, row.node_gpus)}"


def _gpus(row: JobRow) -> str:
    if not row.gpus:
        return "none"
    devices = ", ".join(map(str, views.devices_of(row)))
    words = needs(row.request, is_reserved=True)
    if words == plural(row.gpus, "GPU"):
        words = str(row.gpus)
    mps = " under MPS" if row.share == MPS and devices else ""
    return words + (f" (GPU {devices}{mps})" if devices else "")


def _used_of_gpu(row: JobRow) -> str:
    if row.gpu_memory is None:
        return ""
    words = [f"{format_size(row.gpu_memory)} peak memory"]
    if row.gpu_use is not None:
        words.append(f"{row.gpu_use:.0f}% utilization")
    if row.gpu_energy is not None:
        words.append(f"{row.gpu_energy / 3600:.1f} Wh")
    return ", ".join(words)


def _running_use(queue: Queue, row: JobRow) -> list[tuple[str, str]]:
    """What a running job uses of its GPU memory, and a line for each warning."""
    if row.state not in STARTED:
        return []
    from stoker.features.history.job_usage import running_use

    use = running_use(queue.settings, row)
    if use is None:
        return []
    return [("GPU memory", use.gpu_memory_words()), *(("warning", one) for one in use.warnings)]


def _profile(queue: Queue, row: JobRow) -> str:
    """The command profile of a job: duration and GPU memory of earlier runs, and advice."""
    known = job_queries.profile_of(queue.db, row.profile)
    if known is None or not row.gpus:
        return ""
    words = []
    if known.seconds is not None:
        words.append(f"{plural(known.runs, 'run')} of about {format_duration(known.seconds)}")
        if not Estimate(known.seconds, known.spread).is_steady:
            words.append("durations vary widely")
    if known.memory is not None:
        need = budget(known.memory)
        words.append(f"needs {format_size(need)} of GPU memory")
        advice = sharing_advice(
            row.request,
            known.memory,
            queue.devices(),
            cores(queue.settings),
            shared_speeds(queue.db, row.profile),
        )
        if advice is not None:
            words.append(advice)
    return "; ".join(words)


def _used(row: JobRow) -> str:
    if row.user_seconds is None:
        return ""
    cpu = row.user_seconds + (row.system_seconds or 0)
    memory = f", {format_size(row.max_rss_bytes)} peak memory" if row.max_rss_bytes else ""
    return f"{format_duration(cpu)} CPU time{memory}"


def _when(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
