"""Notes, stars and tags of jobs and sweeps: what users write about their results.

The last writer of a note wins, and the text before the edit is kept as the previous note. Changes
that continue an edit (a web UI saves while the user types) leave the previous note as it is.
"""

from __future__ import annotations

from stoker.engine.store import events
from stoker.engine.store.database import Database, id_list
from stoker.record import Record
from stoker.text.byte_text import to_bytes, to_text
from stoker.text.terminal import printable

JOB, SWEEP = "job", "sweep"
_TAGS = {JOB: "tags", SWEEP: "sweep_tags"}
_CHUNK = 2000
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Note(Record):
    text: str = ""
    revision: int = 0  # 0: there never was a note
    changed_at: float | None = None
    previous: str = ""  # the text before the last edit
    starred: bool = False


NONE = Note()


def note(db: Database, kind: str, id: int) -> Note:
    """Return note and star of a job or sweep; `NONE` if there is nothing."""
    row = db.execute(
        f"SELECT note, revision, changed_at, previous, starred FROM {kind}_annotations"
        f" WHERE {kind} = ?",
        (id,),
    ).fetchone()
    if row is None:
        return NONE
    text, revision, changed_at, previous, starred = row
    return Note(
        text=to_text(text),
        revision=revision,
        changed_at=changed_at,
        previous=to_text(previous),
        starred=bool(starred),
    )


def set_note(
    db: Database, kind: str, id: int, text: str, now: float, *, is_continued: bool = False
) -> Note:
    """Replace a note. Call this inside a transaction.

    `is_continued`: the writer made the last change of the same edit, too.
    """
    before = note(db, kind, id)
    if text == before.text:
        return before
    previous = before.previous if is_continued else before.text
    db.execute(
        f"INSERT INTO {kind}_annotations ({kind}, note, revision, changed_at, previous)"
        f" VALUES (?, ?, 1, ?, x'') ON CONFLICT ({kind}) DO UPDATE"
        " SET note = excluded.note, revision = revision + 1, changed_at = excluded.changed_at,"
        " previous = ?",
        (id, to_bytes(text), now, to_bytes(previous)),
    )
    return note(db, kind, id)


def set_star(db: Database, kind: str, ids: Iterable[int], starred: bool) -> int:
    """Add or remove stars; returns how many changed. Call this inside a transaction."""
    changed = 0
    for id in ids:
        if starred:
            db.execute(f"INSERT OR IGNORE INTO {kind}_annotations ({kind}) VALUES (?)", (id,))
        changed += db.execute(
            f"UPDATE {kind}_annotations SET starred = ? WHERE {kind} = ? AND starred != ?",
            (int(starred), id, int(starred)),
        ).rowcount
    return changed


def is_starred(db: Database, kind: str, id: int) -> bool:
    sql = f"SELECT 1 FROM {kind}_annotations WHERE {kind} = ? AND starred = 1"
    return db.value(sql, (id,)) is not None


def starred(db: Database, kind: str, ids: Iterable[int]) -> set[int]:
    """Return which of these jobs or sweeps have a star."""
    rows = db.execute(
        f"SELECT {kind} FROM {kind}_annotations WHERE starred = 1"
        f" AND {kind} IN (SELECT value FROM json_each(?))",
        (id_list(list(ids)),),
    )
    return {row[0] for row in rows}


def marked_jobs(db: Database, ids: Iterable[int], *, of_sweeps: bool = True) -> set[int]:
    """Return which of these jobs have a star or a note, or belong to a sweep that has one."""
    marked = "FROM {0}_annotations WHERE starred = 1 OR note != x''"
    sql = f"SELECT job {marked.format(JOB)}"
    if of_sweeps:
        sql += f" UNION SELECT id FROM jobs WHERE sweep IN (SELECT sweep {marked.format(SWEEP)})"
    return {row[0] for row in db.execute(sql)}.intersection(ids)


def tags(db: Database, kind: str, id: int) -> list[str]:
    rows = db.execute(f"SELECT tag FROM {_TAGS[kind]} WHERE {kind} = ? ORDER BY tag", (id,))
    return [to_text(row[0]) for row in rows]


def change_tags(
    db: Database, kind: str, id: int, add: Iterable[str], remove: Iterable[str]
) -> list[str]:
    """Add and remove tags; returns what changed, as `+a`, `-b`. Call this inside a transaction."""
    table, changed = _TAGS[kind], []
    for word in add:
        query = f"INSERT OR IGNORE INTO {table} (tag, {kind}) VALUES (?, ?)"
        if db.execute(query, (to_bytes(word), id)).rowcount:
            changed.append(f"+{word}")
    for word in remove:
        query = f"DELETE FROM {table} WHERE tag = ? AND {kind} = ?"
        if db.execute(query, (to_bytes(word), id)).rowcount:
            changed.append(f"-{word}")
    return changed


def tag_jobs(
    db: Database, ids: list[int], add: Sequence[str], remove: Sequence[str], now: float
) -> int:
    """Add and remove tags of jobs, with an event for each job that changed; returns how many did.

    Each chunk is one transaction, so that the daemon gets the write lock in between.
    """
    count = 0
    for start in range(0, len(ids), _CHUNK):
        with db.transaction():
            for job in ids[start : start + _CHUNK]:
                changed = change_tags(db, JOB, job, add, remove)
                if changed:
                    events.record_event(db, job, now, "tagged", printable(" ".join(changed)))
                    count += 1
    return count


def known_tags(db: Database, limit: int) -> list[tuple[str, int]]:
    """Return the most frequent tags of the newest jobs and of sweeps, with their numbers."""
    rows = db.execute(
        "SELECT tag, count(*) FROM (SELECT tag FROM (SELECT tag FROM tags INDEXED BY tags_by_job"
        " ORDER BY job DESC LIMIT 5000) UNION ALL SELECT tag FROM sweep_tags)"
        " GROUP BY tag ORDER BY 2 DESC, 1 LIMIT ?",
        (limit,),
    )
    return [(to_text(tag), count) for tag, count in rows]


def remove_sweep(db: Database, sweep: int) -> None:
    """Remove note, star and tags of a sweep. Call this inside a transaction."""
    db.execute("DELETE FROM sweep_annotations WHERE sweep = ?", (sweep,))
    db.execute("DELETE FROM sweep_tags WHERE sweep = ?", (sweep,))
