"""Prepares a process to be the parent of jobs: subreaper, short time slices, rare GC."""

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
    """Prepare this process; called once by the daemon, the runner and `stoker run`."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Orphaned processes of jobs become our children, not those of init.
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _request_short_slices(libc)
    # The loop creates many tuples but no reference cycles, so collect rarely.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _request_short_slices(libc: ctypes.CDLL) -> None:
    """Request a short scheduler slice: on busy cores, EEVDF then runs this process sooner.

    This needs no privileges and takes no CPU time from jobs: the CPU share stays the same, and
    children start with the default slice. Linux before 6.12 ignores it; errors are ignored.
    """
    number = _SCHED_SETATTR.get(os.uname().machine)
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    # struct sched_attr: size, policy, flags, nice, priority, runtime (here: the slice), ...
    attributes = struct.pack(
        "=IIQiIQQQII",
        56,
        os.SCHED_OTHER,
        _RESET_ON_FORK,
        os.getpriority(os.PRIO_PROCESS, 0),
        0,
        _SLICE_NANOSECONDS,
        0,
        0,
        0,
        0,
    )
    libc.syscall(number, 0, attributes, 0)
