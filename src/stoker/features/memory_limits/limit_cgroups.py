"""Cgroups that limit the memory and the CPU time of jobs, with the setting `limits = "enforce"`.

This needs a version 2 cgroup with the controllers `memory` and `cpu` that the user may write: the
one that the setting `cgroup` names, or the parent's own, such as a delegated scope of systemd. A
cgroup with processes cannot pass controllers on, so the processes of Stoker in it move into a leaf
first, and there must be no others; only the root cgroup is exempt.

An attempt is moved into its cgroup right after its start. If its memory exceeds the limit, the
kernel kills all processes in the cgroup and counts that in `memory.events`.
"""

from __future__ import annotations

import os

from stoker.engine.model import Outcome
from stoker.engine.supervisor.job_processes import descendants
from stoker.text.sizes import format_size

CAUSE = "memory_limit"
_CONTROLLERS = ("memory", "cpu")
_PERIOD = 100_000  # microseconds over which the CPU time is counted
_MOVES = 10  # passes over the descendants of a process that starts others at the same time


def find_problem(parent: str | None) -> str | None:
    """Return why the limits of jobs cannot be enforced below a cgroup; None if they can."""
    if parent is None:
        return "this host has no cgroup version 2"
    controllers = _read(parent, "cgroup.controllers")
    if controllers is None:
        return f"`{parent}` is not a cgroup of version 2"
    missing = [name for name in _CONTROLLERS if name not in controllers.split()]
    if missing:
        return f"the cgroup `{parent}` lacks the controller `{missing[0]}`"
    if not os.access(parent, os.W_OK):
        return f"you may not create cgroups in `{parent}`"
    if not _passes_on(parent) and not os.path.exists(os.path.join(parent, "cgroup.type")):
        return None  # the root cgroup may have processes
    others = [pid for pid in _processes(parent) if not _is_ours(pid)]
    if others and not _passes_on(parent):
        return f"the cgroup `{parent}` has processes that are not Stoker's, e.g. {others[0]}"
    return None


def prepare(parent: str | None, name: str) -> str | None:
    """Create a cgroup for limited attempts below `parent` and return its path; None if impossible.

    Raises nothing: a job whose limits cannot be enforced runs without them.
    """
    if parent is None or find_problem(parent) is not None:
        return None
    place = os.path.join(parent, name)
    try:
        os.makedirs(place, exist_ok=True)
        if not _enable(parent):
            _move_processes(parent, os.path.join(parent, f"{name}-main"))
            if not _enable(parent):
                return None
        return place if _enable(place) else None
    except OSError:
        return None


def limit(path: str, pid: int, memory: int | None, cpus: int) -> bool:
    """Create the cgroup of an attempt with these limits, and move its processes into it."""
    try:
        os.mkdir(path)
        if memory is not None:
            _write(path, "memory.max", str(memory))
            _write(path, "memory.oom.group", "1")
            if os.path.exists(os.path.join(path, "memory.swap.max")):
                _write(path, "memory.swap.max", "0")
        if cpus:
            _write(path, "cpu.max", f"{cpus * _PERIOD} {_PERIOD}")
        moved: set[int] = set()
        for _ in range(_MOVES):
            found = {pid, *descendants(pid)} - moved
            for one in sorted(found, key=lambda one: one != pid):
                try:
                    _write(path, "cgroup.procs", str(one))
                except ProcessLookupError:
                    pass
            if not found:
                break
            moved |= found
        return True
    except OSError:
        return False


def with_cause(outcome: Outcome, path: str) -> Outcome:
    """Return the outcome with the cause, if the kernel killed the attempt for its memory."""
    if not outcome.status or outcome.reason is not None or not _was_killed(path):
        return outcome
    size = (_read(path, "memory.max") or "").strip()
    most = f"{format_size(int(size))} of memory" if size.isdigit() else "its memory"
    return outcome._replace(reason=CAUSE, detail=f"it used more than {most}, its limit (--mem)")


def _was_killed(path: str) -> bool:
    for line in (_read(path, "memory.events") or "").splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count) > 0
    return False


def _enable(path: str) -> bool:
    """Pass the controllers on to the children of a cgroup; False if processes are in it."""
    if _passes_on(path):
        return True
    try:
        _write(path, "cgroup.subtree_control", " ".join(f"+{name}" for name in _CONTROLLERS))
    except OSError:
        return False
    return True


def _passes_on(path: str) -> bool:
    """Whether the children of a cgroup have the controllers."""
    enabled = (_read(path, "cgroup.subtree_control") or "").split()
    return all(name in enabled for name in _CONTROLLERS)


def _processes(path: str) -> list[int]:
    return [int(pid) for pid in (_read(path, "cgroup.procs") or "").split()]


def _is_ours(pid: int) -> bool:
    """Whether a process is Stoker's, or has exited."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4096).split(b"\0")
    except OSError:
        return True
    return any(os.path.basename(one) == b"stoker" or one[:7] == b"stoker." for one in words)


def _move_processes(source: str, target: str) -> None:
    os.makedirs(target, exist_ok=True)
    for pid in filter(_is_ours, _processes(source)):
        try:
            _write(target, "cgroup.procs", str(pid))
        except OSError:
            continue  # it has exited, or belongs to another user


def _read(path: str, name: str) -> str | None:
    try:
        with open(os.path.join(path, name), encoding="ascii") as file:
            return file.read()
    except OSError:
        return None


def _write(path: str, name: str, text: str) -> None:
    with open(os.path.join(path, name), "wb", buffering=0) as file:
        file.write(text.encode())
