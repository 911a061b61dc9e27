"""Open the SQLite file, migrate it to the current schema or refuse, and run transactions.

Rules:

- Every write begins with BEGIN IMMEDIATE: a read transaction that becomes a write fails at once,
  regardless of the timeout.
- A process that has the database open never opens the file by other means: closing such a file
  descriptor would release SQLite's locks.
- A migration is one transaction, including the version number. It happens only while no daemon of
  another release uses the database (see upgrades.py, which has the steps).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from stoker.errors import Broken, Damaged, Error, NoPermission, TryLater, Upgraded
from stoker.testing.failpoints import failpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
else:
    try:
        import _sqlite3 as sqlite3  # without datetime and collections, which sqlite3 imports
    except ImportError:
        import sqlite3

SCHEMA_VERSION = 10  # of schema.sql; the first release has 10 too
FILE_NAME = "queue.db"


def columns(of_jobs: str, of_attempts: str = "") -> dict[str, str]:
    """The SQL of these columns of jobs `j` and attempts `a`, by name."""
    found = {name: f"j.{name}" for name in of_jobs.split()}
    return found | {name: f"a.{name}" for name in of_attempts.split()}


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
        """Return the first column of the first row, or None."""
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

    def version(self) -> tuple[int, int]:
        """Changes whenever any connection, this one included, has changed the database."""
        return self.data_version(), self.connection.total_changes

    def schema_version(self) -> int:
        """Return the schema version; 0 for an empty file."""
        return int(self.execute("PRAGMA user_version").fetchone()[0])

    def is_sound(self) -> bool:
        """Whether SQLite finds no damage. Reads the whole file."""
        try:
            return self.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        except UnicodeDecodeError:  # the error names a part of the schema that is damaged
            return False

    def first_problem(self) -> str | None:
        """Return the first problem that a quick check finds, or None."""
        problem = str(self.value("PRAGMA quick_check(1)"))
        return None if problem == "ok" else problem

    def never_wait(self) -> None:
        """Do not wait for locks and do not checkpoint automatically; used by the loop."""
        self.execute("PRAGMA busy_timeout=0")
        self.execute("PRAGMA wal_autocheckpoint=0")

    def reading(self) -> Reading:
        """`with db.reading():` gives several statements the same view of the database."""
        return Reading(self.connection)


class Reading:
    """A read transaction, or part of the open one. It does not block writers."""

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
    """Takes the write lock, then commits, or rolls back after an exception."""

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
    """Raise Upgraded if the database was migrated since it was opened."""
    version = db.schema_version()
    if version != SCHEMA_VERSION:
        raise Upgraded(
            f"the queue in `{db.folder}` was upgraded by a newer Stoker (schema {version}) while"
            f" this process, which knows schema {SCHEMA_VERSION}, had it open",
            "start this command again; nothing was changed",
        )


def id_list(ids: Iterable[int]) -> str:
    """Return ids as one parameter for `WHERE id IN (SELECT value FROM json_each(?))`."""
    return f"[{','.join(map(str, ids))}]"


def open_database(
    folder: str,
    *,
    durable: bool = True,
    timeout: float = 10.0,
    create: bool = False,
    is_owner: bool = False,
) -> Database:
    """Open the database in `folder`, and create or migrate it if necessary.

    Raises Unavailable if it needs a migration while a daemon of an older release uses it.

    `durable`: commits are synced to disk (submit). Otherwise they survive the death of any process,
    but a power cut only after the next checkpoint, which the daemon makes. `create`: create a
    database even if the folder shows that there was one. `is_owner`: this process holds the lock
    of the daemon or the foreground run.
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
            if version == 0 and not create:
                _refuse_lost(folder)
            if is_owner or version == 0:
                _migrate(connection, folder)
            else:
                _migrate_as_client(connection, folder, timeout)
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        _load_schema(connection)
    except sqlite3.Error as error:
        connection.close()
        if "readonly" in str(error) or not os.access(folder, os.W_OK):
            return open_for_reading(folder)
        if _is_full(folder) and not os.path.exists(f"{path}-wal"):
            return open_for_reading(folder)  # the disk is full, and the log is empty
        raise translate(error, folder) from error
    except Error:
        connection.close()
        raise
    return Database(folder, connection, read_only=not os.access(path, os.W_OK))


def _load_schema(connection: sqlite3.Connection) -> None:
    """Read the schema, which SQLite otherwise does at the first statement.

    Raises sqlite3.Error if it is damaged, also if the message of SQLite is not valid UTF-8.
    """
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 0")
    except UnicodeDecodeError:
        error = sqlite3.DatabaseError("malformed database schema")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error from None


def open_temporary(folder: str) -> Database:
    """Open a temporary database for this process, which disappears when the process ends.

    SQLite keeps it in memory and, if it grows large, in an unlinked file.
    """
    connection = sqlite3.connect("", isolation_level=None)
    connection.execute("PRAGMA synchronous=OFF")
    _migrate(connection, folder)
    return Database(folder, connection, read_only=False)


def open_for_reading(folder: str) -> Database:
    """Open the database without changing any file: for a read-only disk, or a copy.

    Raises NoPermission if there is no database and Broken if its schema is not the current one.
    """
    path = os.path.join(folder, FILE_NAME)
    if not os.path.exists(path):
        raise NoPermission(f"the state folder `{folder}` is read-only and holds no queue")
    from urllib.parse import quote

    connection = sqlite3.connect(
        f"file:{quote(path)}?immutable=1", uri=True, isolation_level=None, timeout=1
    )
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        _load_schema(connection)
    except sqlite3.Error as error:
        connection.close()
        raise translate(error, folder) from error
    if version != SCHEMA_VERSION:
        connection.close()
        raise Broken(
            f"the queue in `{folder}` has schema {version}, this Stoker reads schema"
            f" {SCHEMA_VERSION}, and it cannot be changed",
            "copy the folder to a writable place, or use the release of Stoker that wrote it",
        )
    return Database(folder, connection, read_only=True)


def _refuse_lost(folder: str) -> None:
    """Raise Damaged if the database is empty or missing although the folder had one before."""
    for place, ending in (("snapshots", ".db"), ("jobs", "")):
        try:
            names = os.listdir(os.path.join(folder, place))
        except OSError:
            continue
        if any(name.endswith(ending) for name in names):
            raise Damaged(
                f"the queue's database in `{folder}` is empty or missing, but there was one before",
                "`stoker doctor --repair` restores the newest snapshot; a new queue needs a new"
                " state folder",
            )


def _create_private(path: str) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass


def _connect(path: str, timeout: float) -> sqlite3.Connection:
    # The loop and its checkpoint thread have separate connections.
    connection = sqlite3.connect(path, isolation_level=None, timeout=timeout)
    # Checkpoints sync the disk: rare in clients, never in the daemon's loop (see checkpoints.py).
    connection.execute("PRAGMA wal_autocheckpoint=20000")
    return connection


def _migrate_as_client(connection: sqlite3.Connection, folder: str, timeout: float) -> None:
    from stoker.engine.store.upgrades import migration_lock, without_owner

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
    """Create the schema, or apply the steps to the current one, in one transaction."""
    # A commit writes whole pages: with small pages, a job takes half the bytes.
    connection.execute("PRAGMA page_size=2048")
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
        # Lets vacuum.py shrink the file in small steps.
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
    """Create the tables of a schema without rows; `statements` are those of an older schema."""
    if version == SCHEMA_VERSION:
        statements = list(_statements(_schema()))
    for statement in statements:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if "already exists" not in str(error):
                raise
    connection.execute(f"PRAGMA user_version={version}")


def migrate_to(connection: sqlite3.Connection, target: int) -> None:
    """Apply the steps to schema `target` inside the open transaction."""
    while (version := connection.execute("PRAGMA user_version").fetchone()[0]) < target:
        _step(connection, version)


def refuse_newer(folder: str) -> None:
    """Raise Broken if the database has a newer schema than this release; changes nothing."""
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
    """Return the error for a database with a newer schema."""
    return Broken(
        f"the queue in `{folder}` was written by a newer Stoker (schema {version}, "
        f"this one knows {SCHEMA_VERSION})",
        "upgrade this Stoker; nothing was changed",
    )


def _step(connection: sqlite3.Connection, version: int) -> None:
    if version == 0:
        script, target = _schema(), SCHEMA_VERSION
    else:
        from stoker.engine.store.upgrades import step_from

        script, target = step_from(version), version + 1
    for statement in _statements(script):
        connection.execute(statement)
        failpoint("migrate.between_statements")
    if version == 0:
        # Half of the tag that marks processes of jobs; the attempt id is the other half.
        tag = int.from_bytes(os.urandom(4), "big") >> 2 | 1
        connection.execute("INSERT INTO meta VALUES ('tag', ?), ('next_job', 1)", (tag,))
    connection.execute(f"PRAGMA user_version={target}")


def _schema() -> str:
    with open(os.path.join(os.path.dirname(__file__), "schema.sql"), encoding="utf-8") as file:
        return file.read()


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def translate(error: sqlite3.Error, folder: str) -> Error:
    """Return Stoker's error for an error of SQLite."""
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
            "`stoker doctor --repair` restores what is readable; the damaged files are kept",
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
