"""What makes a process a good parent of jobs: it misses no orphan, and it is never late."""

from __future__ import annotations

import ctypes
import gc
import os
import struct

_PR_SET_CHILD_SUBREAPER = 36
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_RESET_ON_FORK = 1
_SLICE_NANOSECONDS = 100_000


def become_subreaper() -> None:
    """Called once by the daemon, the runner and `stoker run`."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Orphans of our jobs become our children, not init's: nothing gets out of sight.
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _ask_for_short_slices(libc)
    # A loop that makes tuples by the thousand leaves no cycles: look for them rarely.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _ask_for_short_slices(libc: ctypes.CDLL) -> None:
    """Where jobs keep all cores busy, whoever asks for less at a time is served sooner.

    It needs no rights and takes nothing from the jobs: the share stays the same, and children start
    with the usual slice. Linux before 6.12 ignores it; whatever happens, we go on without.
    """
    number = _SCHED_SETATTR.get(os.uname().machine)
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    # struct sched_attr: size, policy, flags, nice, priority, runtime (here: the slice), ...
    attributes = struct.pack(
        "=IIQiIQQQII", 56, os.SCHED_OTHER, _RESET_ON_FORK, os.getpriority(os.PRIO_PROCESS, 0), 0,
        _SLICE_NANOSECONDS, 0, 0, 0, 0,
    )  # fmt: skip
    libc.syscall(number, 0, attributes, 0)
