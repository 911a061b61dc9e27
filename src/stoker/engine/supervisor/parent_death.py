"""Processes that end with their parent."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def send_at_parent_death(number: int) -> None:
    """Make the kernel send a signal to this process when its parent dies.

    A caller that knows the PID of its parent compares it with getppid() afterwards: the parent may
    have died before.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Let SIGKILL end this process when its parent dies; exit now if the parent is dead already."""
    send_at_parent_death(signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit
