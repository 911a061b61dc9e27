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
    "sweeps": "stoker.features.sweeps.control.driver_process:SweepDriverProcess",
    "backends": "stoker.features.backends.driver_processes:BackendDriverProcesses",
    "history": "stoker.features.history.recorder_process:UsageRecorderProcess",
    "results": "stoker.features.results.reports.reader_process:ReportReaderProcess",
    "notify": "stoker.features.notify.notifier_process:NotifierProcess",
}  # by feature: a DaemonHelper (engine/daemon/helper_process.py), in the order of their calls

TRIAL_ENDS = {
    "sweeps": "stoker.features.sweeps.store",
}  # by feature: `judge` and `trial_ended`, called in the transaction that records the end

ORDER_HOOKS = {
    "code": "stoker.features.code.code_checks:CodeChecks",
}  # by feature: an OrderHook (engine/daemon/interfaces.py)

# How jobs share a GPU, by share mode: a ShareServers (engine/daemon/gpus/share_servers.py), and
# what `gpus` shows of it (client/views/gpus.py).
SHARE_SERVERS = {"mps": "stoker.features.mps.mps_servers:MpsServers"}
SHARE_VIEWS = {"mps": "stoker.features.mps.mps_view:load_mps_view"}


START_HOOKS = {
    "activate": "stoker.features.environments.activate:activate",
    "activation_paths": "stoker.features.environments.activate:activation_paths",
    "container": "stoker.features.environments.running_container:container_of",
    "remove_containers": "stoker.features.environments.container_engines:remove_all",
    "code_difference": "stoker.features.code.check_files:difference",
    "limit_place": "stoker.features.memory_limits.limit_cgroups:prepare",
    "limit": "stoker.features.memory_limits.limit_cgroups:limit",
    "limit_cause": "stoker.features.memory_limits.limit_cgroups:with_cause",
    "warm": "stoker.features.warm.warm_starts:WarmStarts",
}  # what the parent of jobs calls at their start and end (engine/supervisor/start_hooks.py)

# Fields of a job in JSON, from the database and the row of the job.
JOB_FIELDS = {
    "code": "stoker.features.code.views:code_json",
    "note": "stoker.features.notes.client:note_in_full",
    "note_line": "stoker.features.notes.client:note_line",
    "sweep": "stoker.features.sweeps.store:sweep_and_trial",
}

# Tables of the settings file: what checks one and returns its value in Settings.
SETTINGS = {
    "notify": "stoker.features.notify.notify_settings:read_notify_settings",
}

# Routers of the web app.
ROUTES = (
    "stoker.features.artifacts.web:router",
    "stoker.features.history.web:router",
    "stoker.features.metrics_export.web:router",
    "stoker.features.notes.web:router",
    "stoker.features.results.web:router",
)

# What happens when jobs are removed: before it, to records (in a transaction), and to files.
BEFORE_REMOVAL = {"results": "stoker.features.results.reports.reports:save_before_removal"}
REMOVED_RECORDS = {
    "backends": "stoker.features.backends.store_allocations:remove_unused",
    "code": "stoker.features.code.store:remove_unused",
}
REMOVED_FILES = {"code": "stoker.features.code.snapshots:remove_unused_files"}

# What the client calls of one feature, by what it is for.
CALLS = {
    "activation": "stoker.features.environments.environment_options:make_activation",
    "artifact_words": "stoker.features.artifacts.artifacts:files_in_words",
    "backend_folders": "stoker.features.backends.store:folders",
    "backend_request": "stoker.features.backends.backend_requests:complete_for_backend",
    "backends_json": "stoker.features.backends.views:backends_json",
    "boot_start": "stoker.features.boot.boot_start:boot_start",
    "check_backend_request": "stoker.features.backends.backend_requests:check_backend_request",
    "code_gatherer": "stoker.features.code.code_gatherer:CodeGatherer",
    "environment": "stoker.features.environments.environment_options:environment_values",
    "files_dir": "stoker.features.backends.store:files_dir",
    "known_boot_start": "stoker.features.boot.boot_start:known_boot_start",
    "machines": "stoker.features.code.views:machines_json",
    "metrics_text": "stoker.features.metrics_export.operator_metrics:metrics_text",
    "notify": "stoker.features.notify.notify_settings:resolve_for_submit",
    "notify_rules": "stoker.features.notify.rules:parse_rules",
    "rerun_places": "stoker.features.code.rerun_code:rerun_places",
    "run_interactive": "stoker.features.terminal.start:run_interactive",
    "running_use": "stoker.features.history.job_usage:running_use",
    "set_boot_start": "stoker.features.boot.boot_start:set_boot_start",
    "short_on_backend": "stoker.features.backends.backend_reasons:short_on_backend",
    "snapshots": "stoker.features.code.snapshots:Snapshots",
    "sweep_by_name": "stoker.features.sweeps.store:by_name",
    "sweep_metric": "stoker.features.sweeps.store:metric_name",
    "why_on_backend": "stoker.features.backends.backend_reasons:why_on_backend",
}


def load(row: str) -> Any:
    """Import and return what a row names: a module, or `module:name` in it."""
    module, _, name = row.partition(":")
    __import__(module)  # importing importlib takes longer than most modules
    return getattr(sys.modules[module], name) if name else sys.modules[module]


def call(name: str, *args: object) -> Any:
    """Call the row of CALLS; None if its feature was taken out."""
    return load(CALLS[name])(*args) if name in CALLS else None
