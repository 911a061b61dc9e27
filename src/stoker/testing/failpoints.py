"""Places where a test may make this process die, as if somebody had typed kill -9 there.

STOKER_FAILPOINT=NAME:N kills the process at its N-th pass of point NAME. With STOKER_FAILPOINT_ONCE
naming a file, it does so only while that file exists and removes it first, so that a restarted
process is left alone. Without the variables a point costs one look at a global.
"""

from __future__ import annotations

import os

_name, _, _count = os.environ.get("STOKER_FAILPOINT", "").partition(":")
_left = int(_count or 1)


def point(name: str) -> None:
    """Die here if a test asked for it."""
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
