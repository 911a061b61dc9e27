"""Steps between schema versions, and locks: which process may migrate a database, and when.

A daemon or a foreground run expects the schema of its release, so the database must not be migrated
while one of another release uses it. Two advisory locks, taken in this order, ensure that:

    migration.lock          held by a client that migrates, and by a daemon while it starts
    daemon.lock, run.lock   held by the owner of the database until it exits

A daemon keeps the first lock until the database is open with its own schema. So if a client holds
the first lock and the second is taken, the owner is of an older release.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from stoker.errors import Broken, TryLater, Unavailable

# Schema version: the SQL script that leads from it to the next version.
STEPS: dict[int, str] = {}

MIGRATION_LOCK = "migration.lock"
_DAEMON_LOCK = "daemon.lock"
_RUN_LOCK = "run.lock"
_POLL_SECONDS = 0.01


def step_from(version: int) -> str:
    """Return the script to the next schema version; raises Broken if there is none."""
    if version not in STEPS:
        raise Broken(
            f"the queue has schema {version}, which this Stoker cannot upgrade",
            "use the Stoker that wrote it, or a new state folder; nothing was changed",
        )
    return STEPS[version]


@contextmanager
def migration_lock(folder: str, timeout: float = 30.0) -> Iterator[None]:
    """Hold the migration lock. Raises TryLater if another process holds it for too long."""
    with _opened(os.path.join(folder, MIGRATION_LOCK)) as descriptor:
        deadline = time.monotonic() + timeout
        while not _lock(descriptor, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise TryLater(f"another process is upgrading the queue in `{folder}`")
            time.sleep(_POLL_SECONDS)
        yield


@contextmanager
def without_owner(folder: str, connection: sqlite3.Connection) -> Iterator[None]:
    """Keep daemons and runs from starting. Raises Unavailable if one is running.

    The caller holds the migration lock.
    """
    with ExitStack() as stack:
        for name in (_DAEMON_LOCK, _RUN_LOCK):
            path = os.path.join(folder, name)
            if name == _RUN_LOCK and not os.path.exists(path):
                continue
            descriptor = stack.enter_context(_opened(path))
            while not _lock(descriptor, fcntl.LOCK_EX):
                if not _lock(descriptor, fcntl.LOCK_SH):
                    raise _older(folder, connection, name, os.pread(descriptor, 32, 0))
                # Another command shares the lock for a moment to check whether it is held.
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
        f"the running daemon ({version}pid {pid}) is older than this command",
        "stoker daemon restart   (running jobs continue; nothing was changed)",
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
