"""Words for shell completion from the queue: bounded queries on a read-only connection.

Completion creates no queue and hardly waits for a writer, so it does not use `open_database`.
"""

from __future__ import annotations

import os
import sqlite3

from stoker.engine.store.database import FILE_NAME
from stoker.text.byte_text import to_text, unpack_words
from stoker.text.commands.shell_words import display

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 50  # words of one kind
_RECENT = "SELECT max(id) - 2000 FROM jobs"  # names and tags of newer jobs are offered
_WAIT_SECONDS = 0.1
_LARGEST_ID = 10**12

Words = list[tuple[str, str]]  # word and description

# Words and descriptions of each kind; trials are found by the name of their sweep.
_QUERIES = {
    "names": "SELECT name, CASE count(*) WHEN 1 THEN 'job ' || max(id)"
    f" ELSE count(*) || ' jobs' END FROM jobs NOT INDEXED WHERE id > ({_RECENT})"
    " AND name IS NOT NULL AND sweep IS NULL GROUP BY name ORDER BY max(id) DESC",
    "tags": "SELECT * FROM (SELECT tag, CASE count(*) WHEN 1 THEN 'tag of 1 job'"
    " ELSE 'tag of ' || count(*) || ' jobs' END FROM tags INDEXED BY tags_by_job"
    f" WHERE job > ({_RECENT}) GROUP BY tag ORDER BY max(job) DESC)"
    " UNION ALL SELECT DISTINCT tag, 'tag of a sweep' FROM sweep_tags s"
    f" WHERE NOT EXISTS (SELECT 1 FROM tags t WHERE t.tag = s.tag AND t.job > ({_RECENT}))",
    "groups": "SELECT DISTINCT substr(fair_share_group, 7), 'fair-share group' FROM request_groups"
    " WHERE fair_share_group >= CAST('group:' AS BLOB)"
    " AND fair_share_group < CAST('group;' AS BLOB)",
    "sweeps": "SELECT name, 'sweep of ' || count || CASE count WHEN 1000 THEN '+' ELSE '' END"
    " || ' trials' || CASE WHEN stopped IS NULL THEN '' ELSE ', stopped' END"
    " FROM (SELECT name, stopped, (SELECT count(*) FROM (SELECT 1 FROM trials"
    " WHERE sweep = sweeps.id LIMIT 1000)) AS count"
    f" FROM sweeps ORDER BY id DESC LIMIT {MOST})",
    "gpus": "SELECT CAST(number AS TEXT), model FROM devices ORDER BY number",
    "gpu_models": "SELECT model, CASE count(*) WHEN 1 THEN '1 GPU' ELSE count(*) || ' GPUs' END"
    " FROM devices GROUP BY model",
    "backends": "SELECT name, 'backend: ' || kind FROM backends WHERE is_removed = 0",
}


class CompletionReader:
    """The queue in a state folder. Raises sqlite3.Error if there is none or it cannot be read."""

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, FILE_NAME)
        quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        self._connection = sqlite3.connect(
            f"file:{quoted}?mode=ro", uri=True, isolation_level=None, timeout=_WAIT_SECONDS
        )
        self._connection.execute("PRAGMA query_only=1")

    def close(self) -> None:
        self._connection.close()

    def words(self, kind: str) -> Words:
        """Return the newest words of a kind: names, tags, sweeps, gpus, …"""
        rows = self._connection.execute(f"{_QUERIES[kind]} LIMIT {MOST}")
        return [(to_text(word) if isinstance(word, bytes) else word, text) for word, text in rows]

    def jobs(self, states: Iterable[str], prefix: str) -> Words:
        """Return ids that begin with `prefix`: by state in the given order, the newest first."""
        found: Words = []
        for state in states:
            for first, last in _ranges(prefix):
                rows = self._connection.execute(
                    "SELECT id, state, name, argv, shell FROM jobs INDEXED BY jobs_by_state"
                    " WHERE state = ? AND id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?",
                    (state, first, last, MOST - len(found)),
                ).fetchall()
                for id, state_now, name, argv, shell in rows:
                    what = to_text(name) if name else display(unpack_words(argv), bool(shell))
                    found.append((str(id), f"{state_now} {what}"))
                if len(found) >= MOST:
                    return found
        return found

    def metrics(self, sweep: str | None) -> Words:
        """Return the metrics of a sweep, or of the newest sweeps."""
        found: dict[str, str] = {}
        for id, own in self._chosen(sweep):
            if own is not None:
                found.setdefault(own, "metric of the sweep")
            for source in ("metrics", "log"):
                rows = self._connection.execute(
                    "SELECT DISTINCT key FROM (SELECT reports FROM trials WHERE sweep = ?"
                    " AND reports IS NOT NULL ORDER BY id DESC LIMIT 3),"
                    f" json_each(reports, '$.names.{source}') LIMIT ?",
                    (id, MOST),
                )
                for row in rows:
                    found.setdefault(str(row[0]), "metric")
        return list(found.items())

    def params(self, sweep: str | None) -> Words:
        """Return the parameters of a sweep, or of the newest sweeps."""
        found: dict[str, str] = {}
        for id, _ in self._chosen(sweep):
            rows = self._connection.execute(
                "SELECT key FROM (SELECT point FROM trials WHERE sweep = ? LIMIT 1),"
                " json_each(point) LIMIT ?",
                (id, MOST),
            )
            for row in rows:
                found.setdefault(str(row[0]), "parameter")
        return list(found.items())

    def newest_jobs(self, count: int) -> list[int]:
        rows = self._connection.execute("SELECT id FROM jobs ORDER BY id DESC LIMIT ?", (count,))
        return [row[0] for row in rows]

    def _chosen(self, sweep: str | None) -> list[tuple[int, str | None]]:
        """(id, metric) of the sweep with this name, or else of the newest ones."""
        columns = "id, json_extract(spec, '$.metric.name')"
        if sweep is not None:
            found = self._connection.execute(
                f"SELECT {columns} FROM sweeps WHERE name = CAST(? AS BLOB)", (sweep,)
            ).fetchall()
            if found:
                return found
        return self._connection.execute(
            f"SELECT {columns} FROM sweeps ORDER BY id DESC LIMIT 5"
        ).fetchall()


def _ranges(prefix: str) -> list[tuple[int, int]]:
    """The ranges of ids that begin with these digits, the largest ids first.

    >>> _ranges("7")[-2:]
    [(70, 79), (7, 7)]
    """
    if not prefix:
        return [(0, _LARGEST_ID)]
    if not (prefix.isascii() and prefix.isdigit()) or len(prefix) > 12:
        return []
    number, found = int(prefix), []
    width = 1
    while number * width <= _LARGEST_ID:
        found.append((number * width, (number + 1) * width - 1))
        width *= 10
    return found[::-1] if number else []
