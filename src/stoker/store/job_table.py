"""Rows of the table of all jobs: filtered, sorted, counted and grouped by SQLite."""

from __future__ import annotations

import json
from collections.abc import Callable

from stoker.core.formats.byte_text import to_bytes, to_text, unpack_words
from stoker.core.formats.command_params import command_params
from stoker.core.record import Record
from stoker.store.database import Database
from stoker.store.history import Filters
from stoker.store.interrupted_jobs import interrupted
from stoker.store.job_columns import COMMAND, STATE, TAGS, column, joins_of
from stoker.store.job_filter_sql import Condition, floor_divided, remainder

_DETAILED = ("exit", "start_failed", "environment_failed", "preempted")  # shown with their detail
_MAX_GROUPS = 1000
_USED = (
    "id, name, argv, shell, attempt, request_group, context, sweep, submitted_at, ended_at,"
    " cause, priority, attempts"
)


class Functions(Record):
    """What SQL takes from the layer above: texts of jobs."""

    command: Callable[[bytes, int], str]
    result: Callable[[str, str | None, int | None, str | None], str | None]


class JobTable:
    """The jobs that match filters and conditions."""

    def __init__(
        self,
        db: Database,
        filters: Filters,
        conditions: list[Condition],
        now: float,
        functions: Functions,
    ) -> None:
        self._db = db
        self._conditions = [*_of_filters(filters), *conditions]
        self._now = now
        boots = {str(job): after for job, (_, after) in interrupted(db).items()}
        self._boots = json.dumps(boots)
        # With such jobs every row is read: their state is not that of the index.
        self._source = f"(SELECT {_USED}, {STATE} AS state FROM jobs j) j" if boots else "jobs j"
        create = db.connection.create_function
        create("stoker_command", 2, functions.command, deterministic=True)
        create("stoker_result", 4, functions.result, deterministic=True)
        create("stoker_param", 3, _command_param, deterministic=True)
        create("stoker_floor", 2, floor_divided, deterministic=True)
        create("stoker_rest", 2, remainder, deterministic=True)
        create("stoker_has", 3, _has_text, deterministic=True)

    def ids(
        self, order: list[tuple[str, bool]], *, before: int | None, offset: int, limit: int
    ) -> list[int]:
        """Ids in order: by columns (name, whether descending), then the newest first."""
        rows = self._select("j.id", "", order, before=before, offset=offset, limit=limit)
        return [int(str(row[0])) for row in rows]

    def values(
        self, names: list[str], order: list[tuple[str, bool]], limit: int
    ) -> list[tuple[object, ...]]:
        """The values of columns, in order."""
        found = [column(name) for name in names]
        joins = "".join(one.joins for one in found)
        picked = ", ".join(_TAG_LIST if one.kind == TAGS else one.sql for one in found) or "1"
        rows = self._select(picked, joins, order, before=None, offset=0, limit=limit)
        return [tuple(_plain(value) for value in row) for row in rows]

    def values_of(self, ids: list[int], names: list[str]) -> dict[int, dict[str, object]]:
        """The values of columns of single jobs, by id."""
        found = [column(name) for name in names]
        joins = joins_of("".join(one.joins for one in found))
        picked = "".join(", " + (_TAG_LIST if one.kind == TAGS else one.sql) for one in found)
        rows = self._db.execute(
            f"SELECT j.id{picked} FROM {self._source} {joins}"
            " WHERE j.id IN (SELECT value FROM json_each(:ids))",
            {"ids": json.dumps(ids), "now": self._now, "boots": self._boots},
        )
        return {
            id: dict(zip(names, (_plain(value) for value in values), strict=True))
            for id, *values in rows
        }

    def count(self, limit: int) -> int:
        """The number of jobs, counted up to `limit`."""
        where, joins, values = self._where("")
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {self._source} {joins}{where} LIMIT :limit)"
        return int(self._db.execute(sql, {**values, "limit": limit}).fetchone()[0])

    def failures(self) -> list[tuple[str, str | None, int | None, str | None, int, int]]:
        """Failed and lost jobs by (state, cause, status, detail), with their number and the newest
        of them; the most frequent first."""
        where, joins, values = self._where("a")
        detailed = ", ".join(f"'{one}'" for one in _DETAILED)
        cause = column("cause").sql
        rows = self._db.execute(
            f"SELECT j.state, {cause} AS cause, a.status AS status, CASE WHEN {cause} IN"
            f" ({detailed}) OR a.status IS NULL THEN a.detail END AS detail, count(*), max(j.id)"
            f" FROM {self._source} {joins}{where or ' WHERE 1'} AND j.state IN ('failed', 'lost')"
            " GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, 6 DESC LIMIT :limit",
            {**values, "limit": _MAX_GROUPS},
        )
        return rows.fetchall()

    def _select(
        self,
        picked: str,
        joins: str,
        order: list[tuple[str, bool]],
        *,
        before: int | None,
        offset: int,
        limit: int,
    ) -> list[tuple[object, ...]]:
        terms, needed = [], joins
        for name, is_descending in order:
            one = column(name)
            needed += one.joins
            key = _FIRST_TAG if one.kind == TAGS else "j.argv" if one.kind == COMMAND else one.sql
            way = " DESC" if is_descending else ""
            terms += [f"{key}{way}"] if name == "id" else [f"{key} IS NULL", f"{key}{way}"]
        if not order or order[-1][0] != "id":
            terms.append("j.id DESC")
        where, tables, values = self._where(needed)
        if before is not None:
            where = f"{where or ' WHERE 1'} AND j.id < :before"
            values["before"] = before
        sql = (
            f"SELECT {picked} FROM {self._source} {tables}{where}"
            f" ORDER BY {', '.join(terms)} LIMIT :limit OFFSET :offset"
        )
        return self._db.execute(sql, {**values, "limit": limit, "offset": offset}).fetchall()

    def _where(self, joins: str) -> tuple[str, str, dict[str, object]]:
        values: dict[str, object] = {"now": self._now, "boots": self._boots}
        for one in self._conditions:
            joins += one.joins
            values.update(one.values)
        where = " AND ".join(one.sql for one in self._conditions)
        return f" WHERE {where}" if where else "", joins_of(joins), values


def among(ids: list[int]) -> Condition:
    """The condition that a job is one of these."""
    sql = "j.id IN (SELECT value FROM json_each(:among))"
    return Condition(sql, {"among": json.dumps(ids)}, "")


_FIRST_TAG = "(SELECT min(tag) FROM tags WHERE tags.job = j.id)"
_TAG_LIST = "(SELECT 'tags:' || group_concat(hex(tag)) FROM tags WHERE tags.job = j.id)"


def _plain(value: object) -> object:
    """A value of SQL as Python has it: text instead of bytes."""
    if isinstance(value, bytes):
        return to_text(value)
    if isinstance(value, str) and value.startswith("tags:"):
        parts = value.removeprefix("tags:").split(",")
        try:
            return ", ".join(sorted(to_text(bytes.fromhex(part)) for part in parts))
        except ValueError:
            return value  # a text of a job that looks alike
    return value


def _of_filters(filters: Filters) -> list[Condition]:
    found = []

    def add(sql: str, joins: str = "", **values: object) -> None:
        found.append(Condition(sql, values, joins))

    if filters.states is not None:
        marks = ", ".join(f":state{n}" for n in range(len(filters.states)))
        add(f"j.state IN ({marks})", **{f"state{n}": s for n, s in enumerate(filters.states)})
    if filters.name is not None:
        add("j.name = :name", name=to_bytes(filters.name))
    if filters.tag is not None:
        add("j.id IN (SELECT job FROM tags WHERE tag = :tag)", tag=to_bytes(filters.tag))
    if filters.sweep is not None:
        add("j.sweep = :sweep", sweep=filters.sweep)
    if filters.backend is not None:
        add("g.backend = :backend", "g", backend=filters.backend)
    if filters.starred:
        add("j.id IN (SELECT job FROM job_annotations WHERE starred = 1)")
    if filters.text:
        add("stoker_has(j.argv, j.name, :text)", text=to_bytes(filters.text.lower()))
    return found


def _command_param(argv: bytes, shell: int, name: str) -> str | int | float | None:
    """A parameter in the command of a job; None if it has none of this name."""
    if name.encode() not in argv:
        return None
    value = command_params(unpack_words(argv), bool(shell)).get(name)
    if value is None or isinstance(value, (int, float)):
        return value
    return str(value).encode("utf-8", "replace").decode()


def _has_text(argv: bytes, name: bytes | None, wanted: bytes) -> bool:
    """Whether command or name have a text, in any case."""
    text = to_text(wanted)
    return text in to_text(argv).replace("\0", " ").lower() or (
        name is not None and text in to_text(name).lower()
    )
