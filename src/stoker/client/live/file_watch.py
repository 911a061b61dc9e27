"""Wait until a file grows: inotify, through a descriptor that becomes readable."""

from __future__ import annotations

import ctypes
import os

_IN_MODIFY = 2
_IN_NONBLOCK = 0o4000
_IN_CLOEXEC = 0o2000000


def watch_file(path: str, old: int | None = None) -> int | None:
    """Return a descriptor that is readable after each change of the file, and close `old`.

    None if the user has no inotify instances left.
    """
    if old is not None:
        os.close(old)
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC))
    if descriptor < 0:
        return None
    libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY)
    return descriptor


def drain(watch: int | None) -> None:
    """Make a descriptor of `watch_file` wait for the next change."""
    if watch is None:
        return
    try:
        os.read(watch, 1 << 16)
    except BlockingIOError:
        pass
