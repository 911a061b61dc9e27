"""Replacements for standard streams that were closed (`stoker submit ... >&-`).

Python sets such a stream to None, and the kernel reuses its descriptor for the next file that is
opened, so that `print` could write into that file. The replacements behave as follows: stdin is at
its end, writing to stdout fails with EBADF, and text written to stderr is discarded.
"""

from __future__ import annotations

import os
import sys


def replace_closed_streams() -> None:
    """Open a replacement for each of stdin, stdout and stderr that is closed."""
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, flags)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
