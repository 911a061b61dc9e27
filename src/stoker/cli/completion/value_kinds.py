"""What completes the value of an option or an argument: a kind of words, or a list of them.

In this order: `completes` of the option, the name of its value in the help text, its key. A new
option that takes a FILE, DIR, JOB, TAG, STATE or SWEEP needs nothing more.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.text.command_line import Option

FILES, FOLDERS = "files", "folders"

_BY_KEY = {
    "on": "backends",
    "gpu_ids": "gpus",
    "prefer": "gpus",
    "devices": "gpus",
    "gpu_model": "gpu_models",
    "group": "groups",
    "sweep": "sweeps",
    "profile": "profiles",
    "conda": "conda",
    "venv": FOLDERS,
    "metric": "metrics",
    "param": "params",
}
_BY_VALUE = {
    "FILE": FILES,
    "PATH": FILES,
    "DIR": FOLDERS,
    "FOLDER": FOLDERS,
    "JOB": "jobs",
    "ID": "jobs",
    "TAG": "tags",
    "STATE": "states",
    "SWEEP": "sweeps",
    "HOST": "hosts",
    "METRIC": "metrics",
    "COLUMNS": "columns",
    "GPU": "gpus",
    "BACKEND": "backends",
    "PROFILE": "profiles",
    "WHEN": "events",
    "WHERE": "places",
}
# For arguments of commands: which jobs, by groups of states, the most likely first.
JOBS = {
    "cancel": ("active", "waiting"),
    "wait": ("active", "waiting"),
    "why": ("waiting",),
    "hold": ("waiting",),
    "release": ("held",),
    "priority": ("waiting",),
    "edit": ("waiting",),
    "rerun": ("final",),
    "rm": ("final",),
    "log": ("active", "final"),
    "pull": ("active", "final"),
}
# What follows the action of a command.
AFTER_ACTION = {
    "gpus": "gpus",
    "backend": "backends",
    "sweep": "sweeps",
    "context": "contexts",
    "notify": "places",
}
AFTER_ADD = {"backend": ("", "slurm|ray"), "context": (), "notify": ()}  # for `add`, by position


def value_kind(option: Option) -> str:
    """Return the kind of an option's value, `a|b` for a list of words, or "" for any text."""
    if option.value is None:
        return ""
    by_value = _BY_VALUE.get(option.value.partition("[")[0], "")
    return option.completes or by_value or _BY_KEY.get(option.key, "")
