"""Single values of a database: the table `meta`."""

from __future__ import annotations

from stoker.engine.store.database import Database


def get_meta(db: Database, key: str) -> object:
    """Return a value; None if there is none."""
    return db.value("SELECT value FROM meta WHERE key = ?", (key,))


def set_meta(db: Database, key: str, value: object) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def is_draining(db: Database) -> bool:
    return bool(db.value("SELECT value FROM meta WHERE key = 'draining'"))


def set_refusal(db: Database, why: str | None) -> None:
    """Record why the runner cannot start processes at the moment; None: it can."""
    if why is None:
        db.execute("DELETE FROM meta WHERE key = 'refusal'")
    else:
        set_meta(db, "refusal", why)


def refusal(db: Database) -> str | None:
    why = db.value("SELECT value FROM meta WHERE key = 'refusal'")
    return None if why is None else str(why)


def tag_base(db: Database) -> int:
    """Return the number that the process tags of this queue start with (process_tags.py)."""
    return int(str(db.value("SELECT value FROM meta WHERE key = 'tag'")))
