"""Rebuild a damaged database from its readable parts, a snapshot and the runner's journal.

Sources, best first: rows of the damaged file, doubtful rows of it, the newest sound snapshot, and
the runner's journal, which lists the attempts that started. A repair never starts a job twice: a
job that may have run since its record was written becomes held, or running, and then the daemon's
recovery determines its state.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing

from stoker.engine.store.database import (
    FILE_NAME,
    SCHEMA_VERSION,
    Database,
    create_schema,
    migrate_to,
    newer,
    open_database,
)
from stoker.engine.store.repair import backups
from stoker.engine.store.repair.rebuild import JournaledStart, Rebuild, StoredTables
from stoker.engine.store.repair.salvage import Salvage, layouts
from stoker.errors import Conflict
from stoker.record import Record

_UNFINISHED = "repairing.db"


class Repaired(Record):
    """The result of a repair; numbers are jobs."""

    moved_to: str  # the folder of the damaged files
    jobs: int  # in the repaired database
    salvaged: int  # read from the damaged file
    from_snapshot: int
    from_journal: int  # with only the few fields that the journal has
    held: int  # were waiting; may have run since, or part of the record is lost
    missing: tuple[int, ...]  # ids that were used and are not in the repaired database
    missing_is_known: bool  # False: jobs after the last known id may be missing too
    snapshot: str | None = None
    taken_at: float | None = None


def set_aside(folder: str) -> str:
    """Copy the files of the database before SQLite opens and possibly changes them.

    Returns the folder of the copies.
    """
    aside = os.path.join(folder, f"damaged-{int(time.time())}")
    while os.path.exists(aside):
        aside += "+"
    os.makedirs(aside, 0o700)
    for suffix in ("", "-wal"):
        path = os.path.join(folder, FILE_NAME + suffix)
        if os.path.exists(path):
            shutil.copy2(path, os.path.join(aside, FILE_NAME + suffix))
    return aside


def repair(
    folder: str, aside: str, journaled: Iterable[JournaledStart], tag: int | None = None
) -> Repaired:
    """Replace the damaged database, whose copy is in `aside`, by a rebuilt one.

    `tag` is the tag of the database, if a running runner knows it. Raises Conflict if another
    process wrote to the damaged database meanwhile; then nothing was changed.
    """
    target = os.path.join(folder, _UNFINISHED)
    for suffix in ("", "-wal", "-shm", "-journal"):
        if os.path.exists(target + suffix):
            os.unlink(target + suffix)
    snapshot = next((path for path in backups.newest(folder) if backups.is_sound(path)), None)
    older = _read_snapshot(folder, snapshot)
    data, log = (_read(os.path.join(aside, FILE_NAME + suffix)) for suffix in ("", "-wal"))
    salvage = Salvage(data, log, older.statements)
    version = salvage.user_version()
    if version > SCHEMA_VERSION and _columns(salvage.statements) != _columns(older.statements):
        raise newer(folder, version)
    if not 0 < version <= SCHEMA_VERSION:
        version = older.version
    if older.version != version:
        if snapshot is not None:
            older = _read_snapshot(folder, snapshot, version)
        elif salvage.has_schema:
            older = StoredTables(version, [("table", *item) for item in salvage.statements.items()])
        else:
            version = older.version
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(target, isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size=2048")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN IMMEDIATE")
        create_schema(connection, version, [*older.creates, *salvage.creates])
        rebuild = Rebuild(
            Database(folder, connection, read_only=False), salvage, older, time.time()
        )
        rebuild.fill()
        migrate_to(connection, SCHEMA_VERSION)
        rebuild.make_consistent(list(journaled), tag)
        counts = rebuild.counts()
        connection.execute("COMMIT")
        check = connection.execute("PRAGMA integrity_check").fetchone()[0]
    if check != "ok":
        raise Conflict(f"the repaired queue is not sound ({check}); nothing was changed")
    _swap(folder, aside, target)
    taken_at = os.stat(snapshot).st_mtime if snapshot is not None else None
    return Repaired(aside, snapshot=snapshot, taken_at=taken_at, **counts)


def _columns(statements: dict[str, str]) -> dict[str, set[str]]:
    return {name: set(layout.columns) for name, layout in layouts(statements).items()}


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _swap(folder: str, aside: str, target: str) -> None:
    """Replace the damaged file by the rebuilt one, atomically."""
    path = os.path.join(folder, FILE_NAME)
    for suffix in ("", "-wal"):
        if _stamp(path + suffix) != _stamp(os.path.join(aside, FILE_NAME + suffix)):
            os.unlink(target)
            raise Conflict(
                "the queue was changed during the repair; nothing was repaired",
                "stoker doctor --repair",
            )
    descriptor = os.open(target, os.O_RDWR | os.O_CLOEXEC)
    os.fsync(descriptor)
    os.close(descriptor)
    for suffix in ("-wal", "-shm"):
        if os.path.exists(path + suffix):
            os.unlink(path + suffix)
    os.replace(target, path)
    open_database(folder).close()  # sets the journal mode and the current schema


def _stamp(path: str) -> tuple[int, int] | None:
    """Return size and modification time of a file; a copy has those of the original."""
    try:
        info = os.stat(path)
    except FileNotFoundError:
        return None
    return info.st_mtime_ns, info.st_size


def _read_snapshot(folder: str, path: str | None, version: int | None = None) -> StoredTables:
    """Return the rows of a snapshot, migrated to `version`; without a snapshot, no rows."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        if path is None:
            create_schema(connection, SCHEMA_VERSION, [])
        else:
            with closing(sqlite3.connect(path)) as source:
                source.backup(connection)
        if (
            version is not None
            and connection.execute("PRAGMA user_version").fetchone()[0] < version
        ):
            connection.execute("BEGIN")
            migrate_to(connection, version)
            connection.execute("COMMIT")
        creates = connection.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
            # Tables, then indexes, then triggers.
            " ORDER BY type = 'trigger', type DESC"
        ).fetchall()
        found = StoredTables(connection.execute("PRAGMA user_version").fetchone()[0], creates)
        if path is not None:
            connection.row_factory = sqlite3.Row
            for name in found.statements:
                found.rows[name] = [
                    dict(row) for row in connection.execute(f"SELECT * FROM {name}")
                ]
    return found
