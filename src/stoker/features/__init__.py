"""Features that the engine does not need, one folder each.

A folder has what its feature adds to every layer: `store.py` (SQL), commands in `verbs/`, routes in
`web.py`, a helper process of the daemon. Its rows here are all that the command line and the engine
need to find it. They import nothing, and without them the others work as before.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The feature of a command, and what it does. "": it is not for users.
COMMANDS = {
    "shell": ("terminal", "open a shell on GPUs on this terminal, or run another program there"),
    "attach": ("terminal", "return to a job of `stoker shell`"),
    "sweep": ("sweeps", "run a command with many parameter values: start, extend, stop, resume"),
    "results": ("results", "show metrics of trials and jobs: sort, filter, group, export"),
    "plot": ("results", "plot learning curves and parameters in the terminal or as PNG or SVG"),
    "report": (
        "results",
        "write a report of a sweep: best trials, curves, provenance; Markdown or HTML",
    ),
    "top": ("top", "show GPUs, jobs, logs and sweeps live in the terminal"),
    "note": ("notes", "write a note about a job or sweep"),
    "tag": ("notes", "add or remove tags of jobs and sweeps"),
    "star": ("notes", "mark jobs and sweeps with a star"),
    "notify": ("notify", "send notifications about jobs: add, test and list places"),
    "backend": ("backends", "manage other places where jobs run: Slurm and Ray clusters"),
    "simulate": ("simulate", "replay a trace of jobs under different scheduling policies"),
    "pull": ("artifacts", "copy logs, metrics and output files of jobs into a folder"),
    "context": ("remote", "name other machines with Stoker: add, ls, use, rm"),
    "box": ("remote", ""),
}

DAEMON_HELPERS = {
    "sweeps": "sweeps.control.driver_process:SweepDriverProcess",
    "backends": "backends.driver_processes:BackendDriverProcesses",
    "history": "history.recorder_process:UsageRecorderProcess",
    "results": "results.reports.reader_process:ReportReaderProcess",
    "notify": "notify.notifier_process:NotifierProcess",
}  # by feature: a DaemonHelper (engine/daemon/helper_process.py), in the order of their calls

TRIAL_ENDS = {
    "sweeps": "sweeps.store",
}  # by feature: `judge` and `trial_ended`, called in the transaction that records the end

ORDER_HOOKS = {
    "code": "code.code_checks:CodeChecks",
}  # by feature: an OrderHook (engine/daemon/interfaces.py)

# How jobs share a GPU, by share mode: a ShareServers (engine/daemon/gpus/share_servers.py), and
# what `gpus` shows of it (client/views/gpus.py).
SHARE_SERVERS = {"mps": "mps.mps_servers:MpsServers"}
SHARE_VIEWS = {"mps": "mps.mps_view:load_mps_view"}


START_HOOKS = {
    "activate": "environments.activate:activate",
    "activation_paths": "environments.activate:activation_paths",
    "container": "environments.running_container:container_of",
    "remove_containers": "environments.container_engines:remove_all",
    "code_difference": "code.check_files:difference",
    "limit_place": "memory_limits.limit_cgroups:prepare",
    "limit": "memory_limits.limit_cgroups:limit",
    "limit_cause": "memory_limits.limit_cgroups:with_cause",
    "warm": "warm.warm_starts:WarmStarts",
}  # what the parent of jobs calls at their start and end (engine/supervisor/start_hooks.py)

# Fields of a job in JSON, from the database and the row of the job.
JOB_FIELDS = {
    "code": "code.views:code_json",
    "note": "notes.client:note_in_full",
    "note_line": "notes.client:note_line",
    "sweep": "sweeps.store:sweep_and_trial",
}

# Tables of the settings file: what checks one and returns its value in Settings.
SETTINGS = {
    "notify": "notify.notify_settings:read_notify_settings",
}

# Routers of the web app.
ROUTES = (
    "artifacts.web:router",
    "history.web:router",
    "metrics_export.web:router",
    "notes.web:router",
    "results.web:router",
)

# What happens when jobs are removed: before it, to records (in a transaction), and to files.
BEFORE_REMOVAL = {"results": "results.reports.reports:save_before_removal"}
REMOVED_RECORDS = {
    "backends": "backends.store_allocations:remove_unused",
    "code": "code.store:remove_unused",
}
REMOVED_FILES = {"code": "code.snapshots:remove_unused_files"}

# What the client calls of one feature, by what it is for.
CALLS = {
    "activation": "environments.environment_options:make_activation",
    "artifact_words": "artifacts.artifacts:files_in_words",
    "backend_folders": "backends.store:folders",
    "backend_request": "backends.backend_requests:complete_for_backend",
    "backends_json": "backends.views:backends_json",
    "boot_start": "boot.boot_start:boot_start",
    "check_backend_request": "backends.backend_requests:check_backend_request",
    "code_gatherer": "code.code_gatherer:CodeGatherer",
    "environment": "environments.environment_options:environment_values",
    "files_dir": "backends.store:files_dir",
    "known_boot_start": "boot.boot_start:known_boot_start",
    "machines": "code.views:machines_json",
    "metrics_text": "metrics_export.operator_metrics:metrics_text",
    "notify": "notify.notify_settings:resolve_for_submit",
    "notify_rules": "notify.rules:parse_rules",
    "rerun_places": "code.rerun_code:rerun_places",
    "run_interactive": "terminal.start:run_interactive",
    "running_use": "history.job_usage:running_use",
    "set_boot_start": "boot.boot_start:set_boot_start",
    "short_on_backend": "backends.backend_reasons:short_on_backend",
    "snapshots": "code.snapshots:Snapshots",
    "sweep_by_name": "sweeps.store:by_name",
    "sweep_metric": "sweeps.store:metric_name",
    "why_on_backend": "backends.backend_reasons:why_on_backend",
}


def load(row: str) -> Any:
    """Import and return what a row names: a module, or `module:name` in it."""
    path, _, name = row.partition(":")
    module = f"stoker.features.{path}"
    __import__(module)  # importing importlib takes longer than most modules
    return getattr(sys.modules[module], name) if name else sys.modules[module]


def call(name: str, *args: object) -> Any:
    """Call the row of CALLS; None if its feature was taken out."""
    return load(CALLS[name])(*args) if name in CALLS else None
