"""Advisory locks of the daemon, the runner and foreground runs; released when the holder exits."""

from __future__ import annotations

import fcntl
import os
import time

from stoker.errors import Conflict

DAEMON_LOCK = "daemon.lock"
RUNNER_LOCK = "runner.lock"
RUN_LOCK = "run.lock"


def take(folder: str, name: str) -> int:
    """Take the lock until this process exits; raises Conflict if another process holds it."""
    path = os.path.join(folder, name)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            pid = holder(folder, name)
            if pid is not None:
                os.close(descriptor)
                what = name.removesuffix(".lock")
                raise Conflict(f"a {what} is already running (pid {pid})") from None
            # It is free: another process was in `holder`, which takes a shared lock briefly.
            time.sleep(0.001)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def holder(folder: str, name: str) -> int | None:
    """The PID of the process that holds the lock (-1: not known); None if it is free."""
    try:
        # Read-only, so that it works on a read-only disk.
        descriptor = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0)
        return int(text) if text.isdigit() else -1
    finally:
        os.close(descriptor)
    return None
