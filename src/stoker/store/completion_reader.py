"""Words for shell completion from the queue: bounded queries on a read-only connection.

Separate from the other queries, because completion imports almost nothing, creates no queue and
never waits for a writer.
"""

from __future__ import annotations

import os
import sqlite3

from stoker.core.formats.byte_text import to_text, unpack_words
from stoker.core.formats.shell_words import display

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 50  # words of one kind
_MOST_RECENT_JOBS = 2000  # whose names and tags are offered
_WAIT_SECONDS = 0.1
_FILE_NAME = "queue.db"  # as in store/database.py, whose import takes longer than a query
_LARGEST_ID = 10**12

Words = list[tuple[str, str]]  # word and description


class CompletionReader:
    """The queue in a state folder. Raises sqlite3.Error if there is none or it cannot be read."""

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, _FILE_NAME)
        quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        self._connection = sqlite3.connect(
            f"file:{quoted}?mode=ro", uri=True, isolation_level=None, timeout=_WAIT_SECONDS
        )
        self._connection.execute("PRAGMA query_only=1")

    def close(self) -> None:
        self._connection.close()

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

    def names(self) -> Words:
        """Return the names of the newest jobs; trials are found by the name of their sweep."""
        rows = self._connection.execute(
            "SELECT name, count(*), max(id) FROM (SELECT name, id, sweep FROM jobs"
            " ORDER BY id DESC LIMIT ?) WHERE name IS NOT NULL AND sweep IS NULL"
            " GROUP BY name ORDER BY 3 DESC LIMIT ?",
            (_MOST_RECENT_JOBS, MOST),
        )
        return [
            (to_text(name), f"job {last}" if count == 1 else f"{count} jobs")
            for name, count, last in rows
        ]

    def tags(self) -> Words:
        """Return the tags of the newest jobs, then those of sweeps."""
        rows = self._connection.execute(
            "SELECT tag, count(*), max(job) FROM tags INDEXED BY tags_by_job"
            " WHERE job > (SELECT max(id) - ? FROM jobs) GROUP BY tag ORDER BY 3 DESC LIMIT ?",
            (_MOST_RECENT_JOBS, MOST),
        )
        found = {
            to_text(tag): "tag of 1 job" if count == 1 else f"tag of {count} jobs"
            for tag, count, _ in rows
        }
        for (tag,) in self._connection.execute("SELECT DISTINCT tag FROM sweep_tags LIMIT 50"):
            found.setdefault(to_text(tag), "tag of a sweep")
        return list(found.items())

    def groups(self) -> Words:
        """Return the fair-share groups that users named."""
        rows = self._connection.execute(
            "SELECT DISTINCT fair_share_group FROM request_groups"
            " WHERE fair_share_group >= CAST('group:' AS BLOB)"
            " AND fair_share_group < CAST('group;' AS BLOB) LIMIT ?",
            (MOST,),
        )
        return [(to_text(row[0]).partition(":")[2], "fair-share group") for row in rows]

    def sweeps(self) -> Words:
        """Return the newest sweeps."""
        rows = self._connection.execute(
            "SELECT name, stopped, (SELECT count(*) FROM (SELECT 1 FROM trials"
            " WHERE sweep = sweeps.id LIMIT 1000)) FROM sweeps ORDER BY id DESC LIMIT ?",
            (MOST,),
        )
        return [
            (
                to_text(name),
                f"sweep of {count}{'+' if count == 1000 else ''} trials"
                + (", stopped" if stopped is not None else ""),
            )
            for name, stopped, count in rows
        ]

    def gpus(self) -> Words:
        """Return the numbers of the GPUs."""
        rows = self._connection.execute("SELECT number, model FROM devices ORDER BY number")
        return [(str(number), model) for number, model in rows]

    def gpu_models(self) -> Words:
        rows = self._connection.execute("SELECT model, count(*) FROM devices GROUP BY model")
        return [(model, f"{count} GPUs" if count > 1 else "1 GPU") for model, count in rows]

    def backends(self) -> Words:
        rows = self._connection.execute("SELECT name, kind FROM backends WHERE is_removed = 0")
        return [(name, f"backend: {kind}") for name, kind in rows]

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
