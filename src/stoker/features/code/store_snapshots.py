"""Records of snapshots: copies of code in which jobs run."""

from __future__ import annotations

from stoker.engine.store.database import Database
from stoker.record import Record
from stoker.text.byte_text import to_bytes, to_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.features.code.snapshot_store import Snapshot


class StoredSnapshot(Record):
    id: str
    root: str  # the git work tree that was copied
    tree: str  # the copy
    files: int
    bytes: int


def save(db: Database, snapshot: Snapshot, now: float) -> None:
    """Record a snapshot, unless it is known. Call this in the transaction that adds its jobs."""
    db.execute(
        "INSERT OR IGNORE INTO snapshots VALUES (?, ?, ?, ?, ?, ?)",
        (
            snapshot.id,
            to_bytes(snapshot.root),
            to_bytes(snapshot.tree),
            snapshot.files,
            snapshot.bytes,
            now,
        ),
    )


def find(db: Database, id: str) -> StoredSnapshot | None:
    """Return a snapshot; None if it is not known."""
    row = db.execute(
        "SELECT id, root, tree, files, bytes FROM snapshots WHERE id = ?", (id,)
    ).fetchone()
    return (
        None if row is None else StoredSnapshot(row[0], to_text(row[1]), to_text(row[2]), *row[3:])
    )


def used(db: Database) -> set[str]:
    """Return the snapshots in which jobs run, or in which trials of a sweep would run."""
    rows = db.execute(
        "SELECT id FROM snapshots s WHERE"
        " EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_by_snapshot WHERE snapshot = s.id)"
        " OR EXISTS (SELECT 1 FROM sweeps WHERE json_extract(base, '$.snapshot') = s.id)"
    )
    return {row[0] for row in rows}


def forget_unused(db: Database) -> None:
    """Remove the records of snapshots that are not used."""
    needed = used(db)
    known = {row[0] for row in db.execute("SELECT id FROM snapshots")}
    db.executemany("DELETE FROM snapshots WHERE id = ?", [(id,) for id in known - needed])
