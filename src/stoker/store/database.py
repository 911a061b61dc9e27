"""Open the SQLite file, bring it to the current schema or refuse, and run transactions.

Rules that cost others their data: every write begins with BEGIN IMMEDIATE (a read that turns into a
write fails at once, whatever the timeout); no process opens the file by other means than SQLite
while it has it open (closing such a descriptor would drop SQLite's locks); a migration is one
transaction together with its version number, and happens only while no daemon of another release
works with the queue (see upgrades.py).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator

from stoker.errors import Broken, Damaged, Error, NoPermission, TryLater, Upgraded
from stoker.testing.failpoints import point

SCHEMA_VERSION = 5
FILE_NAME = "queue.db"


class Database:
    """A connection to the queue in the state folder `folder`."""

    def __init__(self, folder: str, connection: sqlite3.Connection, read_only: bool) -> None:
        self.folder = folder
        self.read_only = read_only
        self.connection = connection
        self.execute = connection.execute
        self.executemany = connection.executemany

    def close(self) -> None:
        self.connection.close()

    def value(self, sql: str, parameters: tuple[object, ...] = ()) -> object:
        """The first column of the first row, or None."""
        row = self.execute(sql, parameters).fetchone()
        return None if row is None else row[0]

    def transaction(self) -> Transaction:
        """`with db.transaction():` is one write transaction."""
        return Transaction(self)

    def begin(self) -> None:
        """Take the write lock. Raises sqlite3.OperationalError if another process has it."""
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Roll back the open transaction, if there is one."""
        if self.connection.in_transaction:
            self.execute("ROLLBACK")

    def data_version(self) -> int:
        """Changes whenever another connection has changed the database."""
        return int(self.execute("PRAGMA data_version").fetchone()[0])

    def schema_version(self) -> int:
        """0: not a queue yet."""
        return int(self.execute("PRAGMA user_version").fetchone()[0])

    def is_sound(self) -> bool:
        """Whether SQLite finds no damage. Reads the whole file."""
        return self.execute("PRAGMA integrity_check").fetchall() == [("ok",)]

    def first_problem(self) -> str | None:
        """What a quick check finds."""
        problem = str(self.value("PRAGMA quick_check(1)"))
        return None if problem == "ok" else problem

    def never_wait(self) -> None:
        """For the loop: no waiting for locks, and checkpoints only where they are asked for."""
        self.execute("PRAGMA busy_timeout=0")
        self.execute("PRAGMA wal_autocheckpoint=0")

    def reading(self) -> Reading:
        """`with db.reading():` sees the queue as it is at one moment, over several statements."""
        return Reading(self.connection)


class Reading:
    """A read transaction, or a part of the one that is open. It keeps nobody from writing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._is_ours = not connection.in_transaction

    def __enter__(self) -> None:
        if self._is_ours:
            self._connection.execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        if self._is_ours and self._connection.in_transaction:
            self._connection.execute("COMMIT")


class Transaction:
    """Begins with the write lock, ends with a commit, or is undone as a whole by any exception."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def __enter__(self) -> None:
        if self._db.read_only:
            if _is_full(self._db.folder):
                raise TryLater(f"the disk that holds `{self._db.folder}` is full")
            raise NoPermission(f"the state folder `{self._db.folder}` is read-only")
        self._execute("BEGIN IMMEDIATE")
        try:
            check_schema(self._db)
        except Error:
            self._db.execute("ROLLBACK")
            raise

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            self._execute("COMMIT")
        elif self._db.connection.in_transaction:
            self._db.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise translate(error, self._db.folder) from error

    def _execute(self, statement: str) -> None:
        try:
            self._db.execute(statement)
        except sqlite3.Error as error:
            if self._db.connection.in_transaction:
                self._db.execute("ROLLBACK")
            raise translate(error, self._db.folder) from error


def check_schema(db: Database) -> None:
    """Raise Upgraded when the queue has another schema than the one it was opened with."""
    version = db.schema_version()
    if version != SCHEMA_VERSION:
        raise Upgraded(
            f"the queue in `{db.folder}` was upgraded by a newer Stoker (schema {version}) while"
            f" this process, which knows schema {SCHEMA_VERSION}, had it open",
            "start this command again; nothing was changed",
        )


def id_list(ids: Iterable[int]) -> str:
    """Ids as one parameter: `WHERE id IN (SELECT value FROM json_each(?))`."""
    return f"[{','.join(map(str, ids))}]"


def open_database(
    folder: str,
    *,
    durable: bool = True,
    timeout: float = 10.0,
    anew: bool = False,
    is_owner: bool = False,
) -> Database:
    """Open the queue in `folder`, creating or migrating it when needed.

    Raises Unavailable when it would have to be migrated under a daemon of an older release.

    `durable` commits reach the disk before they return (submit); otherwise they survive the death
    of any process but not a power cut, until the next checkpoint (the daemon makes those).
    `anew`: make a queue even where another one has left its traces. `is_owner`: this process holds
    the lock of the queue's daemon or run.
    """
    path = os.path.join(folder, FILE_NAME)
    try:
        _create_private(path)
        connection = _connect(path, timeout)
    except OSError as error:
        if os.path.exists(path) and not os.access(folder, os.W_OK):
            return open_for_reading(folder)
        raise _unusable(folder, error) from None
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != SCHEMA_VERSION:
            if version == 0 and not anew:
                _refuse_lost(folder)
            if is_owner or version == 0:
                _migrate(connection, folder)
            else:
                _migrate_as_client(connection, folder, timeout)
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    except sqlite3.Error as error:
        connection.close()
        if "readonly" in str(error) or not os.access(folder, os.W_OK):
            return open_for_reading(folder)
        if _is_full(folder) and not os.path.exists(f"{path}-wal"):
            return open_for_reading(folder)  # no room for the log, but nothing is in it either
        raise translate(error, folder) from error
    except Error:
        connection.close()
        raise
    return Database(folder, connection, read_only=not os.access(path, os.W_OK))


def open_temporary(folder: str) -> Database:
    """A queue for this process alone: it is in no folder, and gone however the process ends.

    SQLite keeps it in memory, and what does not fit there in a file that has no name any more.
    """
    connection = sqlite3.connect("", isolation_level=None)
    connection.execute("PRAGMA synchronous=OFF")
    _migrate(connection, folder)
    return Database(folder, connection, read_only=False)


def open_for_reading(folder: str) -> Database:
    """Open what is there without changing a byte: a read-only disk, or somebody else's copy."""
    path = os.path.join(folder, FILE_NAME)
    if not os.path.exists(path):
        raise NoPermission(f"the state folder `{folder}` is read-only and holds no queue")
    from urllib.parse import quote

    connection = sqlite3.connect(
        f"file:{quote(path)}?immutable=1", uri=True, isolation_level=None, timeout=1
    )
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error as error:
        connection.close()
        raise translate(error, folder) from error
    if version != SCHEMA_VERSION:
        connection.close()
        raise Broken(
            f"the queue in `{folder}` has schema {version}, this Stoker reads schema"
            f" {SCHEMA_VERSION}, and the folder is read-only",
            "copy the folder to a place that can be written, or use the Stoker that made it",
        )
    return Database(folder, connection, read_only=True)


def _refuse_lost(folder: str) -> None:
    """Where a queue has been, an empty file is not a new queue: it is a lost one."""
    for place, ending in (("snapshots", ".db"), ("jobs", "")):
        try:
            names = os.listdir(os.path.join(folder, place))
        except OSError:
            continue
        if any(name.endswith(ending) for name in names):
            raise Damaged(
                f"the queue's database in `{folder}` is empty or gone, and there has been one",
                "`stoker doctor --repair` restores the newest snapshot; a new queue needs a new"
                " state folder",
            )


def _create_private(path: str) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass


def _connect(path: str, timeout: float) -> sqlite3.Connection:
    # The loop and its checkpoint thread each have a connection of their own.
    connection = sqlite3.connect(path, isolation_level=None, timeout=timeout)
    # Checkpoints sync the disk: rarely in clients, never in the daemon's loop (see checkpoints.py).
    connection.execute("PRAGMA wal_autocheckpoint=20000")
    return connection


def _migrate_as_client(connection: sqlite3.Connection, folder: str, timeout: float) -> None:
    from stoker.store.upgrades import migration_lock, without_owner

    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise newer(folder, version)
    try:
        with migration_lock(folder, timeout):
            if connection.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
                with without_owner(folder, connection):
                    _migrate(connection, folder)
    except OSError as error:
        raise _unusable(folder, error) from None


def _migrate(connection: sqlite3.Connection, folder: str) -> None:
    """Create the schema, or walk the numbered steps up to it; all of it or nothing happens."""
    # A commit writes whole pages; with small ones a job costs half the bytes.
    connection.execute("PRAGMA page_size=2048")
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
        # Lets space.py give pages back to the disk in small steps.
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        while (
            version := connection.execute("PRAGMA user_version").fetchone()[0]
        ) != SCHEMA_VERSION:
            if version > SCHEMA_VERSION:
                raise newer(folder, version)
            _step(connection, version)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def create_schema(connection: sqlite3.Connection, version: int, statements: list[str]) -> None:
    """Make the tables of a schema without any row; `statements` for one that is not the newest."""
    if version == SCHEMA_VERSION:
        statements = list(_statements(_script("schema.sql")))
    for statement in statements:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if "already exists" not in str(error):
                raise
    connection.execute(f"PRAGMA user_version={version}")


def migrate_to(connection: sqlite3.Connection, target: int) -> None:
    """Walk the numbered steps; part of the transaction that is open."""
    while (version := connection.execute("PRAGMA user_version").fetchone()[0]) < target:
        _step(connection, version)


def refuse_newer(folder: str) -> None:
    """Raise Broken when the queue has a schema that this release does not know; changes nothing."""
    path = os.path.join(folder, FILE_NAME)
    if not os.path.exists(path):
        return
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error as error:
        raise translate(error, folder) from error
    finally:
        connection.close()
    if version > SCHEMA_VERSION:
        raise newer(folder, version)


def newer(folder: str, version: int) -> Broken:
    """The error about a queue that this release does not know."""
    return Broken(
        f"the queue in `{folder}` was written by a newer Stoker (schema {version}, "
        f"this one knows {SCHEMA_VERSION})",
        "upgrade this Stoker; nothing was changed",
    )


def _step(connection: sqlite3.Connection, version: int) -> None:
    if version == 0:
        source, target = "schema.sql", SCHEMA_VERSION
    else:
        source, target = os.path.join("migrations", f"{version + 1:04d}.sql"), version + 1
    for statement in _statements(_script(source)):
        connection.execute(statement)
        point("migrate.between_statements")
    if version == 0:
        # Half of the kernel tag that marks our processes; the attempt id is the other half.
        tag = int.from_bytes(os.urandom(4), "big") >> 2 | 1
        connection.execute("INSERT INTO meta VALUES ('tag', ?), ('next_job', 1)", (tag,))
    connection.execute(f"PRAGMA user_version={target}")


def _script(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def translate(error: sqlite3.Error, folder: str) -> Error:
    """SQLite's words to ours."""
    text = str(error)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(folder)):
        return TryLater(
            f"the disk that holds `{folder}` is full; nothing was changed", "free some space"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return TryLater(
            "another process holds the queue's database lock; nothing was changed",
            "try again; `stoker doctor` names the holder",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Damaged(
            f"the queue's database in `{folder}` is damaged ({text})",
            "`stoker doctor --repair` saves what can be read of it; the damaged files are kept",
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return NoPermission(f"cannot write to the state folder `{folder}` ({text})")
    if code == sqlite3.SQLITE_IOERR:
        return TryLater(f"the disk that holds `{folder}` reports an error ({text})")
    return Broken(f"the queue's database in `{folder}` reports: {text}")


def _is_full(folder: str) -> bool:
    try:
        space = os.statvfs(folder)
    except OSError:
        return False
    return space.f_bavail == 0 or (space.f_files > 0 and space.f_favail == 0)


def _unusable(folder: str, error: OSError) -> Error:
    import errno

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TryLater(f"the disk that holds `{folder}` is full; nothing was changed")
    return NoPermission(f"cannot use the state folder `{folder}`: {error.strerror}")
