"""Lines: the request groups in which jobs wait that are alike for the policy."""

from __future__ import annotations

from stoker.core.formats.byte_text import (
    maybe_bytes,
    maybe_text,
    pack_words,
    to_bytes,
    to_text,
    unpack_words,
)
from stoker.core.model import JobSpec, Request
from stoker.core.profiles.command_profile import profile_key
from stoker.store.database import Database
from stoker.store.profiles import profile_id

# Families that one submit may add; commands that have nothing in common teach nothing anyway.
_MAX_NEW_FAMILIES = 1000
LINE_COLUMNS = (
    "gpus", "memory", "exclusive", "ids", "prefer", "model", "min_memory", "is_auto",
    "avoid",
)  # fmt: skip
_COLUMNS = ", ".join(LINE_COLUMNS)


class RequestGroups:
    """Finds or makes the rows for the specs of one submit."""

    def __init__(self, db: Database, learns: bool) -> None:
        self._db = db
        self._learns = learns
        self._lines: dict[tuple[Request, str, int], int] = {}
        self._families: dict[str, tuple[int, int]] = {}

    def of(self, spec: JobSpec) -> tuple[int, int]:
        """(line, family) of a job."""
        family, length = self._family(spec) if self._learns else (0, 0)
        key = (spec.request, spec.share, length)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = line_id(self._db, *key)
        return line, family

    def _family(self, spec: JobSpec) -> tuple[int, int]:
        key = profile_key(spec.argv, spec.shell)
        known = self._families.get(key)
        if known is None:
            if len(self._families) >= _MAX_NEW_FAMILIES:
                return 0, 0
            known = self._families[key] = profile_id(self._db, key)
        return known


def line_id(db: Database, request: Request, share: str, length: int = 0) -> int:
    values = (
        request.gpus, request.memory, int(request.exclusive), pack_words(request.ids),
        pack_words(request.prefer), maybe_bytes(request.model), request.min_memory,
        int(request.is_auto), pack_words(request.avoid), to_bytes(share), length,
    )  # fmt: skip
    key = repr(values).encode()
    row = db.execute("SELECT id FROM lines WHERE key = ?", (key,)).fetchone()
    if row is not None:
        return int(row[0])
    cursor = db.execute(
        f"INSERT INTO lines (key, {_COLUMNS}, share, length)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (key, *values),
    )
    return int(cursor.lastrowid or 0)


def read_request(columns: tuple[object, ...]) -> Request:
    """The columns of LINE_COLUMNS as a request."""
    gpus, memory, exclusive, ids, prefer, model, min_memory, is_auto, avoid = columns
    return Request(
        gpus, memory, bool(exclusive), _words(ids), _words(prefer),  # type: ignore[arg-type]
        maybe_text(model), min_memory, bool(is_auto), _words(avoid),  # type: ignore[arg-type]
    )  # fmt: skip


def _words(blob: object) -> tuple[str, ...]:
    return unpack_words(blob) if isinstance(blob, bytes) and blob else ()


def read_line(db: Database, line: int) -> tuple[Request, str]:
    row = db.execute(f"SELECT {_COLUMNS}, share FROM lines WHERE id = ?", (line,)).fetchone()
    return read_request(row[:-1]), to_text(row[-1])


_LIMITED = "executor:"


def limited_share(token: str, most: int) -> str:
    """A fair-share group of which at most so many jobs run at a time: its name says how many."""
    return f"{_LIMITED}{token}:{most}"


def limited_shares(db: Database) -> dict[str, int]:
    """The limits of such groups that have jobs ready to start."""
    rows = db.execute(
        "SELECT DISTINCT share FROM lines WHERE share >= ? AND share < ?"
        " AND EXISTS (SELECT 1 FROM jobs WHERE ready = 1 AND line = lines.id)",
        (to_bytes(_LIMITED), to_bytes(f"{_LIMITED[:-1]};")),
    )
    shares = [to_text(row[0]) for row in rows]
    ends = {share: share.rpartition(":")[2] for share in shares}
    return {share: int(end) for share, end in ends.items() if end.isascii() and end.isdigit()}


def change_request(db: Database, job: int, request: Request, share: str) -> None:
    """The job asks for something else from now on (it ran out of memory)."""
    line = line_id(db, request, share)
    db.execute("UPDATE jobs SET line = ? WHERE id = ?", (line, job))
