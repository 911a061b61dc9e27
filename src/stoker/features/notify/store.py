"""The outbox of notifications: events that triggers recorded, and messages to send.

    event without place  ->  event with place  ->  message: waiting  ->  sent or failed

Each arrow is one transaction of the notifier (features/notify/notifier.py), so a crash loses
nothing and makes no message twice. Between two arrows, the notifier can be killed at any time.
"""

from __future__ import annotations

from typing import Any

from stoker.engine.store.database import Database, id_list
from stoker.record import Record

WAITING, SENT, FAILED = "waiting", "sent", "failed"
MAX_PAUSE = 600.0  # seconds between two tries to send a message
_KEPT_MESSAGES = 1000  # for `stoker notify log`
_KEPT_SECONDS = 90 * 86400.0
# When an attempt `a` of a job `j` is announced: with a tenth of its limit left, 1 to 30 minutes.
# NULL: not at all, since the message would come with the end.
_WARN_AT = (
    "CASE WHEN j.time_limit >= 120 THEN a.started_at + j.time_limit"
    " - min(max(j.time_limit * 0.1, 60), 1800) END"
)
_NOTIFY = "json_extract(j.settings, '$.notify')"
# Running jobs whose time limit may have to be announced, with the time of that.
_LIMITS = (
    f"SELECT j.id, {_NOTIFY} AS notify, j.time_limit, a.id, a.started_at, {_WARN_AT} AS warn_at"
    " FROM jobs j JOIN attempts a ON a.id = j.attempt"
    " WHERE notify IS NOT NULL AND j.time_limit IS NOT NULL AND j.state = 'running'"
    " AND instr(notify, 'time-limit') AND warn_at IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM notify_once WHERE key = 'limit:' || a.id)"
)


class NotifyEvent(Record):
    id: int
    at: float
    kind: str
    job: int | None
    notify: str | None
    place: str | None
    data: dict[str, Any]


class NotifyMessage(Record):
    id: int
    place: str
    created_at: float
    content: dict[str, Any]
    state: str
    tries: int
    due_at: float
    ended_at: float | None
    error: str | None

    def is_due(self, now: float) -> bool:
        return _is_due(self.due_at, now)


def _is_due(at: float, now: float) -> bool:
    """A pause longer than the longest one was written before the wall clock was set back."""
    return not now < at <= now + MAX_PAUSE


class NearLimit(Record):
    """A running job close to its time limit."""

    job: int
    notify: str
    time_limit: float
    attempt: int
    started_at: float


def next_due(db: Database, now: float) -> float | None:
    """When the notifier has work next (wall clock, `now`: at once); None: not before a change."""
    if has_events(db):
        return now
    message = db.value("SELECT min(due_at) FROM notify_messages WHERE state = 'waiting'")
    if message is not None and _is_due(float(str(message)), now):
        return now
    due = [message, db.value(f"SELECT min(warn_at) FROM ({_LIMITS})")]
    return min((float(str(at)) for at in due if at is not None), default=None)


def has_events(db: Database) -> bool:
    return db.value("SELECT 1 FROM notify_events LIMIT 1") is not None


def has_new(db: Database, now: float) -> bool:
    """Whether there are events whose places are not chosen yet, or a time limit is near."""
    if db.value("SELECT 1 FROM notify_events WHERE place IS NULL LIMIT 1") is not None:
        return True
    return db.value(f"SELECT 1 FROM ({_LIMITS}) WHERE warn_at <= ?", (now,)) is not None


def events(db: Database) -> list[NotifyEvent]:
    """Return all recorded events, oldest first."""
    import json  # not at the top: `stoker run` only asks whether there are events

    names = NotifyEvent._fields
    rows = db.execute(f"SELECT {', '.join(names)} FROM notify_events ORDER BY id")
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return [NotifyEvent(**{**fields, "data": json.loads(fields["data"])}) for fields in found]


def add_event(
    db: Database, at: float, kind: str, job: int | None, place: str, data: dict[str, Any]
) -> None:
    """Record an event for one place."""
    import json

    db.execute(
        "INSERT INTO notify_events (at, kind, job, place, data) VALUES (?, ?, ?, ?, ?)",
        (at, kind, job, place, json.dumps(data)),
    )


def remove_events(db: Database, ids: list[int]) -> None:
    db.execute(
        "DELETE FROM notify_events WHERE id IN (SELECT value FROM json_each(?))", (id_list(ids),)
    )


def is_first(db: Database, key: str, now: float) -> bool:
    """Whether this is announced for the first time; from now on it is not."""
    return bool(db.execute("INSERT OR IGNORE INTO notify_once VALUES (?, ?)", (key, now)).rowcount)


def near_limits(db: Database, now: float) -> list[NearLimit]:
    """Return running jobs close to their time limit whose attempt was not announced yet."""
    rows = db.execute(f"{_LIMITS} AND warn_at <= ?", (now,))
    return [NearLimit(*row[:-1]) for row in rows]


def unfinished_in_sweep(db: Database, sweep: int) -> bool:
    """Whether a sweep goes on: jobs are left, or its search may add some. False if removed."""
    row = db.execute("SELECT is_driven, stopped FROM sweeps WHERE id = ?", (sweep,)).fetchone()
    if row is None:
        return False
    if row[0] and row[1] is None:
        return True
    return _has_unfinished(db, "sweep = ?", sweep)


def unfinished_in_batch(db: Database, batch: int) -> bool:
    """Whether a job that was submitted together with job `batch` has not finished."""
    return _has_unfinished(db, "batch = ?", batch)


def _has_unfinished(db: Database, which: str, number: int) -> bool:
    states = "'held', 'queued', 'submitted', 'starting', 'running', 'stopping'"
    query = f"SELECT 1 FROM jobs WHERE {which} AND state IN ({states}) LIMIT 1"
    return db.value(query, (number,)) is not None


def group_counts(db: Database, column: str, number: int) -> tuple[dict[str, int], float | None]:
    """Return the jobs of a sweep or batch by state, and the time from first submit to last end.

    Of a trial that was rerun, only the newest job counts.
    """
    is_sweep = column == "sweep"
    newest = " AND id IN (SELECT job FROM trials WHERE sweep = ?)" if is_sweep else ""
    rows = db.execute(
        f"SELECT state, count(*), min(submitted_at), max(ended_at) FROM jobs WHERE {column} = ?"
        f"{newest} GROUP BY state",
        (number,) * (1 + is_sweep),
    ).fetchall()
    ends = [row[3] for row in rows if row[3] is not None]
    seconds = max(ends) - min(row[2] for row in rows) if ends else None
    return {row[0]: row[1] for row in rows}, seconds


def sweep_facts(db: Database, sweep: int) -> tuple[bytes, str | None] | None:
    """Return the name of a sweep and why it was stopped; None if it was removed."""
    row = db.execute("SELECT name, stopped FROM sweeps WHERE id = ?", (sweep,)).fetchone()
    return None if row is None else (row[0], row[1])


# -- messages ------------------------------------------------------------------------------------


def add_message(db: Database, place: str, content: dict[str, Any], now: float) -> int:
    import json

    cursor = db.execute(
        "INSERT INTO notify_messages (place, created_at, content, state, due_at)"
        " VALUES (?, ?, ?, 'waiting', ?)",
        (place, now, json.dumps(content), now),
    )
    return int(cursor.lastrowid or 0)


_COLUMNS = ", ".join(NotifyMessage._fields)


def _message(row: tuple[Any, ...]) -> NotifyMessage:
    import json

    fields = dict(zip(NotifyMessage._fields, row, strict=True))
    return NotifyMessage(**{**fields, "content": json.loads(fields["content"])})


def waiting(db: Database) -> list[NotifyMessage]:
    """Return the messages that are not sent yet, in the order of their next try."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM notify_messages WHERE state = 'waiting' ORDER BY due_at, id"
    )
    return [_message(row) for row in rows]


def newest(db: Database, limit: int) -> list[NotifyMessage]:
    """Return the newest messages, oldest first."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM notify_messages ORDER BY id DESC LIMIT ?", (limit,))
    return [_message(row) for row in rows][::-1]


def last_message_at(db: Database, place: str) -> float | None:
    """When the newest message to a place was made; None if there was none."""
    at = db.value("SELECT max(created_at) FROM notify_messages WHERE place = ?", (place,))
    return None if at is None else float(str(at))


def mark_sent(db: Database, message: int, now: float) -> None:
    db.execute(
        "UPDATE notify_messages SET state = 'sent', tries = tries + 1, ended_at = ?, error = NULL"
        " WHERE id = ?",
        (now, message),
    )


def mark_failed(db: Database, message: int, error: str, now: float, next_try: float | None) -> None:
    """Record a failed try; without `next_try`, the message is given up."""
    db.execute(
        "UPDATE notify_messages SET tries = tries + 1, error = ?, due_at = coalesce(?, due_at),"
        " state = CASE WHEN ? IS NULL THEN 'failed' ELSE state END,"
        " ended_at = CASE WHEN ? IS NULL THEN ? END WHERE id = ?",
        (error, next_try, next_try, next_try, now, message),
    )


def retry_failed(db: Database, now: float) -> int:
    """Try messages again that were given up; returns their number."""
    return db.execute(
        "UPDATE notify_messages SET state = 'waiting', created_at = ?, due_at = ?,"
        " ended_at = NULL WHERE state = 'failed'",
        (now, now),
    ).rowcount


def forget_old(db: Database, now: float) -> None:
    """Remove messages and marks that are so old that nothing needs them."""
    db.execute(
        "DELETE FROM notify_messages WHERE state != 'waiting' AND id <="
        " (SELECT max(id) FROM notify_messages) - ?",
        (_KEPT_MESSAGES,),
    )
    db.execute("DELETE FROM notify_once WHERE at < ?", (now - _KEPT_SECONDS,))
