"""Processes that end with their parent."""

from __future__ import annotations

import ctypes

_PR_SET_PDEATHSIG = 1


def send_at_parent_death(signal: int) -> None:
    """Make the kernel send `signal` to this process when its parent dies.

    A caller that knows the PID of its parent compares it with getppid() afterwards: the parent may
    have died before.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal, 0, 0, 0)
