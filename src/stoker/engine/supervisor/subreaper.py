"""Prepares a process to be the parent of jobs: subreaper, rare garbage collection."""

from __future__ import annotations

import ctypes
import gc

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Prepare this process; called once by the daemon, the runner and `stoker run`."""
    # Orphaned processes of jobs become our children, not those of init.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # The loop creates many tuples but no reference cycles, so collect rarely.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
