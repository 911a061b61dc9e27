"""Submits that can be repeated: what was added is stored under a token of the client.

A client whose connection was lost repeats its submit with the same token. The receipt is written in
the transaction that adds the jobs, so each chunk of jobs is added once, even if the first submit is
still running. The receipts are rows of `meta` and are removed after a week.
"""

from __future__ import annotations

import json

from stoker.engine.store.database import Database
from stoker.engine.store.meta import get_meta, set_meta

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PREFIX = "submit:"
_KEPT_SECONDS = 7 * 86400.0


def receipt(db: Database, token: str, chunk: int) -> dict[str, Any] | None:
    """What an earlier submit with this token stored for this chunk; None if it did not."""
    text = get_meta(db, f"{_PREFIX}{token}:{chunk}")
    return None if text is None else json.loads(str(text))


def save_receipt(db: Database, token: str, chunk: int, content: dict[str, Any], now: float) -> None:
    """Store what a submit added, inside the caller's transaction; removes old receipts."""
    if chunk == 0:
        _remove_old(db, now)
    set_meta(db, f"{_PREFIX}{token}:{chunk}", json.dumps({**content, "at": now}))


def _remove_old(db: Database, now: float) -> None:
    rows = db.execute(
        "SELECT key, value FROM meta WHERE key >= ? AND key < ?", (_PREFIX, _PREFIX[:-1] + ";")
    ).fetchall()
    for key, text in rows:
        if json.loads(str(text))["at"] < now - _KEPT_SECONDS:
            db.execute("DELETE FROM meta WHERE key = ?", (key,))
