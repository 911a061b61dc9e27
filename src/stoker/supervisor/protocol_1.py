"""Protocol 1, used by daemons and runners of 0.1: a message is a list, values in this order.

An upgrade replaces the daemon, but not the runner, whose jobs keep running. So a daemon may talk to
a runner of the previous release, and the other way round if the files were replaced while an old
daemon was running. The next release may drop this module.
"""

from __future__ import annotations

from typing import Any

_BEGUN = ("attempt", "pid", "at", "mono")
_FIELDS = {
    "context": ("id", "cwd", "env", "umask", "shell"),
    "launch": (
        "leases", "attempt", "job", "number", "argv", "shell", "context", "env", "devices",
        "stdout", "stderr", "own_log", "time_limit", "grace", "keep_children", "warn", "folder",
    ),
    "stop": ("attempt", "reason", "grace"),
    "begun": _BEGUN,
    "ended": (
        "attempt", "status", "ended_at", "reason", "user_seconds", "system_seconds",
        "max_rss_bytes", "detail", "last_error",
    ),
    "refused": ("attempt", "why"),
    "rolled": ("segment",),
    "living": ("attempts", "segment"),
}  # fmt: skip


def encode(kind: str, fields: dict[str, Any]) -> list[Any]:
    """
    >>> encode("stop", {"attempt": 7, "reason": "user", "grace": None, "color": "red"})
    ['stop', 7, 'user', None]
    >>> encode("living", {"attempts": [{"attempt": 1, "pid": 2, "at": 0, "mono": 3}], "segment": 4})
    ['living', [[1, 2, 0, 3]], 4]
    """
    values = [fields.get(name) for name in _FIELDS.get(kind, ())]
    if kind == "living":
        values[0] = [[begun.get(name) for name in _BEGUN] for begun in fields["attempts"]]
    return [kind, *values]


def decode(kind: str, values: list[Any]) -> dict[str, Any]:
    """
    >>> decode("stop", [7, "user", None])
    {'attempt': 7, 'reason': 'user', 'grace': None}
    """
    fields: dict[str, Any] = dict(zip(_FIELDS.get(kind, ()), values, strict=False))
    if kind == "living":
        attempts = fields["attempts"]
        fields["attempts"] = [dict(zip(_BEGUN, begun, strict=False)) for begun in attempts]
    return fields
