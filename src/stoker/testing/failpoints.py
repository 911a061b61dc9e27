"""Failpoints: places where a test can kill this process with SIGKILL.

STOKER_FAILPOINT=NAME:N kills the process when it passes the failpoint NAME for the N-th time. If
STOKER_FAILPOINT_ONCE names a file, this happens only while that file exists; the file is removed
first, so that the restarted process survives. Without the variables, a failpoint costs one
comparison.
"""

from __future__ import annotations

import os

_name, _, _count = os.environ.get("STOKER_FAILPOINT", "").partition(":")
_left = int(_count or 1)


def failpoint(name: str) -> None:
    """Kill this process if the failpoint `name` is active."""
    if _name == name:
        _pass()


def _pass() -> None:
    global _left
    _left -= 1
    if _left:
        return
    once = os.environ.get("STOKER_FAILPOINT_ONCE")
    if once:
        try:
            os.unlink(once)
        except FileNotFoundError:
            return
    os.kill(os.getpid(), 9)
