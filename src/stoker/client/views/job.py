"""Jobs and the daemon as text and JSON, for all interfaces."""

from __future__ import annotations

import os
import time

from stoker.engine.daemon.status import daemon_pid, runner_pid
from stoker.engine.job_settings import JobSettings
from stoker.engine.model import LOCAL, JobSpec, Request
from stoker.engine.outcome.wait_status import exit_code_of, signal_of
from stoker.engine.store import job_queries, meta
from stoker.engine.store.database import Database
from stoker.engine.store.device_settings import load_devices
from stoker.engine.store.interrupted_jobs import REBOOTED
from stoker.engine.store.job_queries import JobRow
from stoker.engine.supervisor.logs import job_folder, log_path
from stoker.engine.supervisor.process_table import STOPPED, process_state
from stoker.errors import NotFound
from stoker.features import JOB_FIELDS, call, load
from stoker.settings import Settings
from stoker.states import ACTIVE, FINAL, WAITING, is_satisfied
from stoker.text.activation import parse_activation, shown_activation
from stoker.text.commands.shell_words import display
from stoker.text.durations import format_duration

# Texts of the causes that say more than an exit code.
CAUSES = {
    "gpu_oom": "out of GPU memory",
    "host_oom": "out of memory",
    "disk_full": "disk full",
    "missing_program": "command not found",
    "missing_script": "script not found",
    "missing_module": "module not found",
    "environment_failed": "its environment could not be activated",
    "container_failed": "its container could not be started",
    "gpu_error": "GPU error",
    "gpu_lost": "its GPU was lost",
    "mps_failed": "its MPS server failed",
    "time_limit": "time limit",
    "memory_limit": "memory limit",
    "user": "by the user",
    "requeue": "requeued by the job",
    "crowded": "no room beside other jobs on its GPU",
    "stopped_early": "stopped early",
    "sweep": "sweep stopped",
    "dependency": "a dependency was not met",
    "engine_cancel": "cancelled outside Stoker",
    "preempted": "preempted",
}
NO_DAEMON = "no daemon is running; start it with `stoker daemon start`"
_WITH_CODE = ("missing_script",)  # the exit code distinguishes Python (2) from a shell (127)
_NEEDED = 3  # dependencies that fit into a cell
# `signal` in JSON is the one that ended a job; the others are shown by the command line alone.
_NOT_IN_JSON = ("signal", "grace", "keep_children", "activation")
_LABELS = {"on_oom": "on OOM", "no_bind": "CPU binding", "warm": "warm start", "notify": "notifies"}
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.client.views import job_types


def exit_code(row: JobRow) -> int | None:
    return exit_code_of(row.status)


def signal_number(row: JobRow) -> int | None:
    return signal_of(row.status)


def devices_of(row: JobRow) -> tuple[int, ...]:
    """The GPUs on which a job runs or last ran; none for a job that waits for a retry."""
    return () if row.state in WAITING else row.devices


def place_words(row: JobRow) -> str:
    """Where a job runs, for a cell: `0,1`, or `lab n2:0` on a backend; `(1)` while it waits."""
    if not row.request.backend:
        return ",".join(map(str, devices_of(row))) or (f"({row.gpus})" if row.gpus else "-")
    place = row.request.backend
    if row.node is None or row.state in (*WAITING, "submitted"):
        nodes = f"{row.request.nodes}x" if row.request.nodes > 1 else ""
        return f"{place} ({nodes}{row.gpus})" if row.gpus or nodes else place
    return f"{place} {node_words(row.node, row.node_gpus)}"


def node_words(node: str, gpus: str | None) -> str:
    """`n2:0,1`, or `n2` without GPUs."""
    return f"{node}:{gpus}" if gpus else node


def log_paths(settings: Settings, row: JobRow) -> tuple[str | None, str | None]:
    """(stdout, stderr) of the latest attempt; stderr is None if it goes to the same file."""
    if not row.attempts:
        return None, None
    folder = row.files_dir or settings.state_dir
    return row.stdout or log_path(folder, row.id, row.attempts), row.stderr


def job_json(db: Database, settings: Settings, row: JobRow) -> dict[str, Any]:
    """A job as JSON. The field names are part of the JSON schema (text/json_schema.py)."""
    out, err = log_paths(settings, row)
    uuids = {device.number: device.uuid for device in load_devices(db)}
    job: job_types.EngineJob = {
        "id": row.id,
        "name": row.name,
        "state": row.state,
        "cause": row.cause or (row.attempt_cause if row.state in FINAL else None),
        "exit_code": exit_code(row),
        "signal": signal_number(row),
        "detail": row.detail,
        "result": result_words(row, db),
        "progress": _reported_progress(db, settings, row),
        "command": display(row.argv, row.shell),
        "argv": list(row.argv),
        "shell": row.shell,
        "cwd": row.cwd,
        **request_json(row.request),
        "under_mps": row.share == "mps",
        "reserves": host_words(row),
        "claim_bytes": row.claim,
        "claim_cpus": row.cpus,
        "claim_mem_bytes": row.host_claim,
        "gpu_memory_peak_bytes": row.gpu_memory,
        "gpu_use_percent": row.gpu_use,
        "gpu_energy_joules": row.gpu_energy,
        "node": row.node if row.state not in WAITING else None,
        "node_gpus": row.node_gpus if row.state not in WAITING else None,
        "place": place_words(row),
        "devices": [{"index": i, "uuid": uuids.get(i, "")} for i in devices_of(row)],
        "priority": row.priority,
        "tags": job_queries.tags(db, row.id),
        **_added("note_line", db, row),
        "group": row.group,
        "after": [
            {"job": n, "condition": c, "met": m} for n, c, m in job_queries.dependencies(db, row.id)
        ],
        "attempts": row.attempts,
        **settings_json(row.settings),
        "snapshot": row.snapshot,
        "snapshot_dir": row.snapshot_dir,
        "preemptions": row.preemptions,
        "gives_way_to": row.asked_for if row.state in ACTIVE else None,
        "time_limit": row.time_limit,
        "submitted_at": iso(row.submitted_at),
        "eligible_at": iso(row.eligible_at),
        "started_at": iso(row.started_at),
        "ended_at": iso(row.ended_at),
        "stop_requested": row.stop_requested,
        "pid": row.pid if row.state in ACTIVE else None,
        "user_seconds": row.user_seconds,
        "system_seconds": row.system_seconds,
        "max_rss_bytes": row.max_rss_bytes,
        "stdout": out,
        "stderr": err or out,
        "batch": row.batch,
        "batch_index": row.batch_index,
        "array": array_of(row),
        "array_index": row.array_index,
        "rerun_of": row.rerun_of,
        "dedupe": row.dedupe,
        **_added("sweep", db, row),
    }
    return {**job}


def request_json(request: Request) -> job_types.Requested:
    """What a job requests, as JSON."""
    return {
        "gpus": request.gpus,
        "gpu_mem_bytes": request.memory,
        "gpu_mem_auto": request.is_auto,
        "gpu_ids": list(request.ids),
        "prefer": list(request.prefer),
        "gpu_model": request.model,
        "min_gpu_mem_bytes": request.min_memory,
        "exclusive": request.exclusive,
        "share": request.share or None,
        "cpus": request.cpus or None,
        "mem_bytes": request.host_memory,
        "mem_auto": request.is_auto_host,
        "need": needs_of(request),
        "on": request.backend or LOCAL,
        "nodes": request.nodes,
        "option": list(request.options),
        "preemptible": request.preemptible,
    }


def spec_json(spec: JobSpec) -> dict[str, Any]:
    """A job that is not submitted, as JSON for a dry run."""
    return {
        "argv": list(spec.argv),
        "shell": spec.shell,
        "name": spec.name,
        "cwd": spec.context.cwd,
        **request_json(spec.request),
        **settings_json(spec.settings),
        "snapshot": spec.snapshot is not None,
        "priority": spec.priority,
        "time_limit": spec.time_limit,
        "begin_at": iso(spec.begin_at),
        "tags": list(spec.tags),
        "array": spec.array,
    }


def settings_json(settings: JobSettings) -> job_types.Settings:
    """For `show --json`, dry runs and the web UI."""
    values: Any = {key: v for key, v in settings.values().items() if key not in _NOT_IN_JSON}
    values["warm"] = "auto" if settings.warm == "" else settings.warm
    values["notify"] = settings.notify.split(",") if settings.notify else []
    shown: job_types.Settings = values | environment_json(settings.activation)
    return shown


def environment_json(words: tuple[str, ...]) -> job_types.Environment:
    """The environment of a job, for JSON; the keys are those of the options."""
    activation = parse_activation(words)
    return {
        "conda": activation.conda or None,
        "venv": activation.venv or None,
        "uv": activation.uv,
        "module": list(activation.modules),
        "container": activation.container or None,
        "mount": list(activation.mounts),
    }


def settings_rows(settings: JobSettings) -> list[tuple[str, str]]:
    """Label and text of each setting that is not the default; a switch has no text."""
    texts = settings.changes()
    activation = texts.pop("activation", ())
    if settings.no_bind:
        texts["no_bind"] = "off"
    if settings.warm == "":
        texts["warm"] = "learned modules"
    if settings.notify:
        texts["notify"] = settings.notify.replace(",", ", ")
    rows = [
        (_LABELS.get(key, key.replace("_", " ")), "" if value is True else str(value))
        for key, value in texts.items()
    ]
    return rows + shown_activation(activation)


def _reported_progress(db: Database, settings: Settings, row: JobRow) -> str | None:
    """What a running job reports: `step 120/1000 (12%), loss 0.31`; None if that is nothing.

    Without its likely end, which changes all the time: a change of JSON means a report.
    """
    if row.state not in ACTIVE:
        return None
    from stoker.client.views.job_progress import job_progress

    known = job_progress(db, settings, row)
    return None if known is None else known._replace(remaining=None).words() or None


def array_of(row: JobRow) -> int | None:
    """The id of the array of a job; None if it is not in one."""
    return row.batch if row.array_index is not None else None


def array_words(row: JobRow) -> str:
    """`7_3`: index 3 of array 7; "" for a job that is not in an array."""
    return "" if row.array_index is None else f"{row.batch}_{row.array_index}"


def needs_of(request: Request) -> dict[str, int]:
    """The amount of each counter in a request."""
    pairs = (need.split("=") for need in request.needs)
    return {name: int(amount) for name, amount in pairs}


def host_words(row: JobRow) -> str:
    """What a job reserves of the host: `8 cores, 20 GiB of memory`; "" if it declares nothing."""
    from stoker.engine.policy.host_words import declared_words

    request = row.request
    if request.is_auto_host and row.host_claim is not None and row.state not in WAITING:
        request = request._replace(host_memory=row.host_claim)
    return ", ".join(declared_words(request))


def job_in_full(db: Database, settings: Settings, row: JobRow) -> dict[str, Any]:
    """A job as JSON, with its folders, code, attempts and events."""
    machines = call("machines", db, row.id) or {}
    attempts: list[job_types.Attempt] = [
        {
            "number": a.number,
            "devices": list(a.devices),
            "node": a.node,
            "node_gpus": a.gpus,
            "started_at": iso(a.started_at),
            "ended_at": iso(a.ended_at),
            "status": a.status,
            "cause": a.cause,
            "detail": a.detail,
            "result": "" if a.ended_at is None else attempt_words(a.cause, a.status, a.detail),
            "machine": machines.get(a.number),
        }
        for a in job_queries.attempts(db, row.id)
    ]
    events: list[job_types.JobEvent] = [
        {"at": iso(at), "kind": kind, "data": data}
        for at, kind, data in job_queries.events(db, row.id)
    ]
    folders = {
        "output_dir": output_folder(settings, row),
        "checkpoint_dir": checkpoint_folder(settings, row),
    }
    return {
        **job_json(db, settings, row),
        **_added("note", db, row),
        **folders,
        **_added("code", db, row),
        "history": attempts,
        "events": events,
    }


def _added(name: str, db: Database, row: JobRow) -> Any:
    """Fields that a feature adds to the JSON of a job; none if it was taken out."""
    return load(JOB_FIELDS[name])(db, row) if name in JOB_FIELDS else {}


def output_folder(settings: Settings, row: JobRow) -> str:
    """$STOKER_OUTPUT_DIR of a job; it may not exist."""
    return row.output_dir or job_folder(row.files_dir or settings.state_dir, row.id)


def checkpoint_folder(settings: Settings, row: JobRow) -> str:
    """$STOKER_CHECKPOINT_DIR of a job; it may not exist."""
    return os.path.join(output_folder(settings, row), "checkpoints")


def iso(at: float | None) -> str | None:
    """ISO 8601 in UTC."""
    if at is None:
        return None
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def result_words(row: JobRow, db: Database | None = None) -> str:
    """How a job ended; "" if it succeeded or has not finished. With `db`, a job that was cancelled
    because of a dependency names the other job."""
    if row.state == "done" or row.state not in FINAL:
        return ""
    cause = row.cause or row.attempt_cause
    if cause == "dependency" and db is not None:
        return _failed_dependency(db, row.id) or CAUSES[cause]
    return end_words(cause, row.status, row.detail)


def ended_words(
    state: str, cause: str | None, status: int | None, detail: str | None
) -> str | None:
    """How a job ended, as tables filter and group it; None if it succeeded or has not finished."""
    if state == "done" or state not in FINAL:
        return None
    return end_words(cause, status, detail)


def end_words(cause: str | None, status: int | None, detail: str | None) -> str:
    """How an attempt ended: `out of GPU memory`, `exit 1: ValueError: bad lr`."""
    if cause == "start_failed":
        return detail or "could not start"
    if cause in ("preempted", "environment_failed") and detail:
        return detail
    if cause in CAUSES:
        if cause in _WITH_CODE and exit_code_of(status) is not None:
            return f"{CAUSES[cause]} (exit {exit_code_of(status)})"
        return CAUSES[cause]
    if status is None:
        return detail or "no exit record"
    signal = signal_of(status)
    words = signal_words(signal) if signal else f"exit {exit_code_of(status)}"
    return f"{words}: {detail}" if cause == "exit" and detail else words


def attempt_words(cause: str | None, status: int | None, detail: str | None) -> str:
    """How an attempt ended, with its exit code or signal: `out of GPU memory, exit 1`."""
    words, code = end_words(cause, status, detail), end_words(None, status, None)
    return words if status is None or code in words else f"{words}, {code}"


def _failed_dependency(db: Database, id: int) -> str:
    """`job 7 failed`: the dependency that can never be met."""
    for needs, condition, met in job_queries.dependencies(db, id):
        if not met:
            try:
                state = job_queries.job(db, needs).state
            except NotFound:
                return f"job {needs} was removed"
            if is_satisfied(state, condition) is False:
                return f"job {needs} {'succeeded' if state == 'done' else state_words(state)}"
    return ""


def state_words(state: str) -> str:
    """A state as a part of a sentence: `is running`, `failed`, `was cancelled`."""
    if state in ("cancelled", "lost"):
        return f"was {state}"
    return state if state == "failed" else f"is {state}"


def process_words(db: Database, row: JobRow) -> str:
    """A notice about suspended or unkillable processes of a job; "" if there are none."""
    if row.pid is None or row.state not in ("running", "stopping"):
        return ""
    if is_asked(row):
        return f"asked to make room for {row.asked_for}"
    if row.paused_at is not None:
        events = reversed(job_queries.events(db, row.id))
        why = next((data for _, kind, data in events if kind == "paused"), None)
        return f"paused by Stoker {why or ''}".rstrip()
    if process_state(row.pid) == STOPPED:
        return f"suspended; continue it with `kill -CONT {row.pid}`"
    if row.state == "stopping":
        for _, kind, why in reversed(job_queries.events(db, row.id)):
            if kind == "stuck":
                return f"{why}; the job keeps its GPUs"
    return ""


def waiting_words(db: Database, row: JobRow, now: float, draining: bool = False) -> str:
    """What a queued job waits for, from its own row; `stoker why` considers the whole queue."""
    if row.state != "queued":
        return ""
    words = []
    if row.blockers:
        needs = [str(needs) for needs, _, met in job_queries.dependencies(db, row.id) if not met]
        more = ", ..." if len(needs) > _NEEDED else ""
        words.append(f"after {', '.join(needs[:_NEEDED])}{more}")
    if row.eligible_at is not None and row.eligible_at > now:
        if row.attempts:
            words.append(f"retry in {format_duration(row.eligible_at - now)}")
        else:
            words.append(f"begins {clock_words(row.eligible_at, now)}")
    if row.is_interrupted and not words:
        words.append(f"{REBOOTED}, runs again")
    if gave_way(row) and not words:
        words.append(f"gave way to {row.asked_for}")
    if draining and not words:
        words.append("draining")
    return ", ".join(words)


def is_asked(row: JobRow) -> bool:
    """Whether a running job is asked to give way."""
    return row.state in ACTIVE and row.asked_for is not None and not row.stop_requested


def gave_way(row: JobRow) -> bool:
    """Whether a queued job waits because its last attempt gave way to another job."""
    return row.state == "queued" and row.attempt_cause == "preempted" and row.asked_for is not None


def clock_words(at: float, now: float) -> str:
    """The time of day, with the date if it is not today."""
    day = "%Y-%m-%d"
    when, today = time.localtime(at), time.localtime(now)
    is_today = time.strftime(day, when) == time.strftime(day, today)
    return time.strftime("%H:%M" if is_today else f"{day} %H:%M", when)


def signal_words(number: int) -> str:
    import signal

    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"


def daemon_facts(db: Database, settings: Settings) -> dict[str, Any]:
    folder = settings.state_dir
    pid = daemon_pid(folder)
    runner = runner_pid(folder)
    return {
        "running": pid is not None,
        "stopped": pid is not None and process_state(pid) == STOPPED,
        "pid": pid,
        "runner_pid": runner,
        "runner_stopped": runner is not None and process_state(runner) == STOPPED,
        "version": meta.get_meta(db, "daemon_version"),
        "python": meta.get_meta(db, "daemon_python"),
        "draining": meta.is_draining(db),
        "state_dir": folder,
        "log": os.path.join(folder, "daemon.log"),
    }
