"""Who may change the schema of a queue, and when.

A daemon or a foreground run works with the schema that it knows, so nobody migrates a queue under
one of another release. The order of the locks makes that exact:

    migration.lock          one at a time: a client that migrates, a daemon while it starts
    daemon.lock, run.lock   held for life by the owner of the queue

A daemon takes both in this order and keeps the first until the queue is open, with its own schema.
So a client that holds the first and finds an owner has found one of an older release.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from stoker.errors import TryLater, Unavailable

MIGRATION_LOCK = "migration.lock"
_DAEMON_LOCK = "daemon.lock"
_RUN_LOCK = "run.lock"
_LOOK_AGAIN_SECONDS = 0.01


@contextmanager
def migration_lock(folder: str, timeout: float = 30.0) -> Iterator[None]:
    """Be the only one that changes the schema; TryLater when somebody else does for too long."""
    with _opened(os.path.join(folder, MIGRATION_LOCK)) as descriptor:
        give_up = time.monotonic() + timeout
        while not _lock(descriptor, fcntl.LOCK_EX):
            if time.monotonic() > give_up:
                raise TryLater(f"another process is upgrading the queue in `{folder}`")
            time.sleep(_LOOK_AGAIN_SECONDS)
        yield


@contextmanager
def without_owner(folder: str, connection: sqlite3.Connection) -> Iterator[None]:
    """Keep daemons and runs away; Unavailable when one is there. The migration lock is ours."""
    with ExitStack() as stack:
        for name in (_DAEMON_LOCK, _RUN_LOCK):
            path = os.path.join(folder, name)
            if name == _RUN_LOCK and not os.path.exists(path):
                continue
            descriptor = stack.enter_context(_opened(path))
            while not _lock(descriptor, fcntl.LOCK_EX):
                if not _lock(descriptor, fcntl.LOCK_SH):
                    raise _older(folder, connection, name, os.pread(descriptor, 32, 0))
                # Not held: another command was just looking, which shares it for a moment.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                time.sleep(0.001)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield


def _older(folder: str, connection: sqlite3.Connection, name: str, holder: bytes) -> Unavailable:
    pid = holder.decode("ascii", "replace")
    if name == _RUN_LOCK:
        return Unavailable(
            f"a `stoker run` of an older release (pid {pid}) still uses `{folder}`",
            "wait until it ends, then try again; nothing was changed",
        )
    row = connection.execute("SELECT value FROM meta WHERE key = 'daemon_version'").fetchone()
    version = f"version {row[0]}, " if row is not None else ""
    return Unavailable(
        f"the daemon that runs ({version}pid {pid}) is older than this command",
        "stoker daemon restart   (running jobs go on; nothing was changed)",
    )


@contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
