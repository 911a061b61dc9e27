"""A job as a row of the list and as the facts above its log; a sweep as a row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from stoker.engine.policy.short_reasons import SEPARATOR
from stoker.features.results.export import short
from stoker.features.top.glyphs import STATE_STYLES, Glyphs, Span, clean
from stoker.features.top.row_table import Column
from stoker.record import Record
from stoker.states import FINAL, STARTED
from stoker.text.durations import format_duration
from stoker.text.sizes import format_size
from stoker.text.terminal import cut

Job = Mapping[str, Any]  # as in `stoker ls --json`; of waiting jobs also `why` and `starts_at`
Sweep = Mapping[str, Any]  # as in features/sweeps/sweeps_view.py

_INTERPRETER = re.compile(r"^(\S*/)?python[0-9.]* (-u )?(?=\S)")
JOB_COLUMNS = (
    Column("ID", least=4, is_right=True),
    Column("STATE", least=9),
    Column("TIME", least=6, is_right=True),
    Column("GPU", least=3, most=16),
    Column("JOB", is_flexible=True),
    Column("PROGRESS, REASON OR RESULT"),
)
SWEEP_COLUMNS = (
    Column("SWEEP", most=24),
    Column("STATE", least=8),
    Column("FINISHED", least=12),
    Column("FAILED", is_right=True),
    Column("BEST", most=28),
    Column("COMMAND"),
)


class Reported(Record):
    """What a job reports: its progress; of the selected job also the values of its metrics."""

    progress: str = ""  # as in client/views/job_progress.py, with its newest metric and an ETA
    metrics: tuple[tuple[str, object], ...] = ()


def job_cells(job: Job, reported: Reported | None, now: float, glyphs: Glyphs) -> list[Span]:
    state = str(job["state"])
    return [
        (str(job["id"]), ""),
        (state, STATE_STYLES.get(state, "")),
        (time_words(job, now), ""),
        (clean(job["place"]), ""),
        (title(job), ""),
        (_info(job, reported, now, glyphs), "red" if state in ("failed", "lost") else ""),
    ]


def title(job: Job) -> str:
    """The name of a job, or its command without the interpreter; first its index in an array.

    >>> title({"name": None, "command": "/opt/bin/python3 -u train.py --lr 0.1"})
    'train.py --lr 0.1'
    >>> title({"name": "train", "command": "a", "array": 7, "array_index": 3})
    '7_3 train'
    """
    index = job.get("array_index")
    array = "" if index is None else f"{job['array']}_{index} "
    return clean(array + str(job["name"] or _INTERPRETER.sub("", str(job["command"]))))


def seconds_of(iso: object) -> float | None:
    """Seconds since the epoch of a time as in JSON."""
    return None if iso is None else datetime.fromisoformat(str(iso)).timestamp()


def time_words(job: Job, now: float) -> str:
    """How long a job runs or ran, or when it likely starts."""
    state, started = job["state"], seconds_of(job["started_at"])
    if state in FINAL:
        ended = seconds_of(job["ended_at"])
        return "-" if started is None or ended is None else _duration(ended - started)
    if state in STARTED:
        return "-" if started is None else _duration(now - started)
    at = job.get("starts_at")
    return "-" if at is None else f"in {_duration(at - now)}"


def _duration(seconds: float) -> str:
    """As `format_duration`, in whole seconds: fewer changes on the screen."""
    return f"{max(0, int(seconds))}s" if seconds < 10 else format_duration(seconds)


def ago_words(seconds: float) -> str:
    """
    >>> ago_words(20), ago_words(125), ago_words(7300)
    ('just now', '2m ago', '2h ago')
    """
    if seconds < 60:
        return "just now"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return ""


def _info(job: Job, reported: Reported | None, now: float, glyphs: Glyphs) -> str:
    parts: list[str] = []
    state = job["state"]
    if state in FINAL:
        ended = seconds_of(job["ended_at"])
        parts = [str(job["result"]), "" if ended is None else ago_words(now - ended)]
        parts.append(_rest(job))
    elif state in STARTED:
        if job["gives_way_to"]:
            parts.append(f"asked to make room for {job['gives_way_to']}")
        if reported is not None:
            parts.append(reported.progress)
        parts.append(_rest(job))
    else:
        parts = ["" if job["priority"] == 0 else _priority(job), short_reason(job, glyphs)]
    return clean(glyphs.dot.join(part for part in parts if part))


def short_reason(job: Job, glyphs: Glyphs) -> str:
    """Why a job waits, in fewer words: the log pane has all of them.

    >>> from stoker.features.top.glyphs import ASCII
    >>> words = "behind 2 jobs · GPU 2 reserved for 25"
    >>> short_reason({"state": "queued", "why_short": words}, ASCII)
    'behind 2 jobs - GPU 2 reserved for 25'
    """
    if job["state"] == "held":
        return "press h to release it"
    words = str(job.get("why_short") or job.get("why") or "")
    return words.replace(SEPARATOR, glyphs.dot)


def _priority(job: Job) -> str:
    return f"priority {job['priority']}"


def _rest(job: Job) -> str:
    """What the column of the job does not show."""
    if job["sweep"] is not None:
        return f"sweep {job['sweep']}, trial {job['trial']}"
    return str(job["command"]) if job["name"] else ""


def facts(job: Job, reported: Reported | None, now: float, columns: int, glyphs: Glyphs) -> Group:
    """Everything important about one job; the reason for waiting in full."""
    state = str(job["state"])
    heading = glyphs.line("")
    for word, style in (
        (f"job {job['id']}", "bold"), (title(job), "bold"),
        (state, STATE_STYLES.get(state, "")), (time_words(job, now), ""),
    ):  # fmt: skip
        heading.append("  " if heading else "").append(word, style)
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=9, style="dim")
    table.add_column()

    def add(name: str, text: object, style: str = "", most: int = 1) -> None:
        if text:
            table.add_row(name, Text(cut(clean(text), most * max(20, columns - 11)), style))

    if state in FINAL:
        add("result", job["result"], "red" if state in ("failed", "lost") else "", 2)
    add("why", job.get("why"), "", 3)
    if reported is not None:
        add("progress", reported.progress)
        add(
            "metrics", glyphs.dot.join(f"{name} {short(value)}" for name, value in reported.metrics)
        )
    add("command", job["command"], "", 2)
    add("folder", job["cwd"])
    add("request", glyphs.dot.join(_request(job)))
    add("times", glyphs.dot.join(_times(job, now)))
    heading.end = "\n"
    return Group(heading, table)


def _request(job: Job) -> list[str]:
    gpus = job["gpus"]
    words = [f"{gpus} GPU{'' if gpus == 1 else 's'}"]
    if job["gpu_mem_bytes"]:
        words.append(f"{format_size(job['gpu_mem_bytes'])} of GPU memory")
    if job["reserves"]:
        words.append(str(job["reserves"]))
    if job["time_limit"]:
        words.append(f"time limit {format_duration(job['time_limit'])}")
    words.append(_priority(job))
    if job["attempts"] > 1 or job["retries"]:
        words.append(f"attempt {job['attempts']} of up to {job['retries'] + 1}")
    if job["sweep"] is not None:
        words.append(f"sweep {job['sweep']}, trial {job['trial']}")
    if job["tags"]:
        words.append(f"tags {', '.join(job['tags'])}")
    return words


def _times(job: Job, now: float) -> list[str]:
    words = []
    for name in ("submitted", "started", "ended"):
        at = seconds_of(job[f"{name}_at"])
        if at is not None:
            words.append(f"{name} {ago_words(now - at)}")
    if job["gpu_memory_peak_bytes"]:
        words.append(f"peak {format_size(job['gpu_memory_peak_bytes'])} of GPU memory")
    return words


def sweep_cells(sweep: Sweep, glyphs: Glyphs) -> list[Span]:
    trials, total = sweep["trials"], int(sweep["total"])
    finished = sum(trials.get(state, 0) for state in FINAL)
    failed = trials.get("failed", 0) + trials.get("lost", 0)
    state, best, metric = str(sweep["state"]), sweep["best"], sweep["metric"]
    words = "-"
    if best is not None and metric is not None:
        words = f"{metric['name']} {short(best['value'])} (trial {best['trial']})"
    return [
        (clean(sweep["name"]), ""),
        (state, STATE_STYLES.get(state, "")),
        (f"{glyphs.bar(finished / total if total else 0.0, 8)} {finished}/{total}", ""),
        (str(failed), "red" if failed else "dim"),
        (clean(words), ""),
        (clean(sweep["command"]), ""),
    ]
