"""The state of the code at submit. Jobs with equal states share one row."""

from __future__ import annotations

import zlib

from stoker.engine.store.database import Database
from stoker.record import Record
from stoker.text.byte_text import maybe_bytes, maybe_text, to_bytes, to_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.features.code.state_reader import CodeState


class StoredCode(Record):
    """A recorded state without its diff."""

    id: int
    root: str
    commit: str | None
    branch: str | None
    is_dirty: bool | None
    diff_bytes: int
    problem: str | None


class NewCode(Record):
    """A state that is ready to be stored: compressed, with its key."""

    key: str
    columns: tuple[object, ...]

    def save(self, db: Database) -> int:
        """Return the id of the state, which is created if it is new. Call this in a transaction."""
        known = db.value("SELECT id FROM code_states WHERE key = ?", (self.key,))
        if known is not None:
            return int(str(known))
        cursor = db.execute(
            "INSERT INTO code_states (key, root, commit_id, branch, is_dirty, diff, diff_bytes,"
            " problem) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (self.key, *self.columns),
        )
        return int(cursor.lastrowid or 0)


def prepare(state: CodeState) -> NewCode:
    """Compress a state. Call this before the transaction that stores it."""
    columns: tuple[object, ...] = (
        to_bytes(state.root),
        state.commit,
        maybe_bytes(state.branch),
        None if state.is_dirty is None else int(state.is_dirty),
        zlib.compress(state.diff) if state.diff else None,
        state.diff_bytes,
        state.problem,
    )
    plain = (*columns[:4], state.diff, *columns[5:])
    return NewCode(_hash(repr(plain).encode()), columns)


def code_key(code: StoredCode | NewCode, diff: bytes = b"") -> tuple[str, str]:
    """A text that is equal for equal code, wherever it lies and on every branch, and a label:
    the commit, and four characters more if there are changes. Empty if changes are not known."""
    if isinstance(code, NewCode):
        _, commit, _, _, packed, _, problem = code.columns
        diff = b"" if packed is None else zlib.decompress(packed)  # type: ignore[arg-type]
    else:
        commit, problem = code.commit, code.problem
    if commit is not None and problem is not None:
        return "", ""
    key = _hash(repr((commit, diff, problem)).encode())
    return key, key[:12] if commit is None else str(commit)[:12] + (f"+{key[:4]}" if diff else "")


def load(db: Database, id: int) -> StoredCode | None:
    """Return a state; None if it was removed."""
    return _stored(db, "FROM code_states c WHERE c.id = ?", id)


def of_job(db: Database, job: int) -> StoredCode | None:
    """Return the state of the code when a job was submitted; None if none was recorded."""
    return _stored(db, "FROM jobs j JOIN code_states c ON c.id = j.code WHERE j.id = ?", job)


def _stored(db: Database, source: str, id: int) -> StoredCode | None:
    row = db.execute(
        f"SELECT c.id, c.root, c.commit_id, c.branch, c.is_dirty, c.diff_bytes, c.problem {source}",
        (id,),
    ).fetchone()
    if row is None:
        return None
    id, root, commit, branch, is_dirty, size, problem = row
    dirty = None if is_dirty is None else bool(is_dirty)
    return StoredCode(id, to_text(root), commit, maybe_text(branch), dirty, size, problem)


def diff_of(db: Database, id: int) -> bytes:
    """Return the diff of a state; empty if there is none or it was not kept."""
    row = db.execute("SELECT diff FROM code_states WHERE id = ?", (id,)).fetchone()
    return b"" if row is None or row[0] is None else zlib.decompress(row[0])


def known(db: Database) -> set[int]:
    """Return the ids of all states."""
    return {row[0] for row in db.execute("SELECT id FROM code_states")}


def remove_unused(db: Database) -> None:
    """Remove the states that no job refers to. Call this inside a transaction."""
    db.execute(
        "DELETE FROM code_states WHERE NOT EXISTS"
        " (SELECT 1 FROM jobs INDEXED BY jobs_by_code WHERE jobs.code = code_states.id)"
    )


def _hash(data: bytes) -> str:
    # The module of hashlib loads OpenSSL, which takes longer than the rest of a submit's imports.
    try:
        from _sha256 import sha256  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        try:
            from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            from hashlib import sha256
    return str(sha256(data).hexdigest())
