"""The file of the usage history, for all modules that read it."""

from __future__ import annotations

import sqlite3
from urllib.parse import quote

FILE_NAME = "traces.db"


def open_for_reading(path: str) -> sqlite3.Connection:
    """Open a database read-only. Raises sqlite3.Error if there is none."""
    # Read-only, so that closing does not remove the log of a file that was replaced.
    return sqlite3.connect(
        f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, timeout=1.0
    )
