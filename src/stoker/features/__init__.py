"""Features that the engine does not need, one folder each.

A folder has what its feature adds to every layer: `store.py` (SQL), commands in `verbs/`, routes in
`web.py`, a helper process of the daemon. Its row here is all that the command line needs to find
it, and imports nothing.
"""

import sys

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COMMANDS = {
    "artifacts": ("pull",),
    "backends": ("backend",),
    "notes": ("note", "tag", "star"),
    "notify": ("notify",),
    "remote": ("box", "context"),
    "results": ("results", "plot", "report"),
    "simulate": ("simulate",),
    "sweeps": ("sweep",),
    "terminal": ("shell", "attach"),
    "top": ("top",),
}  # by feature; the commands of the engine are in cli/verbs/

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


def load(row: str):  # type: ignore[no-untyped-def]
    """Import and return what a row names: a module, or `module:name`."""
    module, _, name = row.partition(":")
    __import__(module)  # importing importlib takes longer than most modules
    return getattr(sys.modules[module], name) if name else sys.modules[module]
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
# What the client calls of one feature, by what it is for.
CALLS = {
    "activation": "environments.environment_options:make_activation",
    "backend_request": "backends.backend_requests:complete_for_backend",
    "check_backend_request": "backends.backend_requests:check_backend_request",
    "code_gatherer": "code.code_gatherer:CodeGatherer",
    "environment": "environments.environment_options:environment_values",
    "files_dir": "backends.store:files_dir",
    "notify": "notify.notify_settings:resolve_for_submit",
    "notify_rules": "notify.rules:parse_rules",
    "rerun_places": "code.rerun_code:rerun_places",
    "snapshots": "code.snapshots:Snapshots",
}


def load(row: str) -> Any:
    """Import and return what a row names: `notify.rules:parse_rules`."""
    module, _, name = row.partition(":")
    module = f"stoker.features.{module}"
    __import__(module)  # importing importlib takes longer than most modules
    return getattr(sys.modules[module], name)
