"""Rows of the table of all jobs: filtered, sorted, counted and grouped by SQLite."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from stoker.engine.store.database import Database, id_list
from stoker.engine.store.interrupted_jobs import interrupted
from stoker.engine.store.job_columns import COMMAND, STATE, TAGS, Condition, column, joins_of
from stoker.record import Record
from stoker.states import ACTIVE, FINAL, STATES, WAITING
from stoker.text.byte_text import to_bytes, to_text, unpack_words

Order = list[tuple[str, bool]]  # columns, each with whether it is descending
NEWEST_FIRST: Order = [("id", True)]
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


class Filters(Record):
    """What every list of jobs can be narrowed by."""

    states: tuple[str, ...] | None = None
    tag: str | None = None
    name: str | None = None
    sweep: int | None = None
    text: str | None = None  # in command or name, in any case
    backend: str | None = None  # "" is this host
    starred: bool = False  # only jobs with a star
    among: list[int] | None = None  # only these jobs
    newest: int | None = None  # only jobs with one of this many latest ids


class JobTable:
    """The jobs that filters and conditions select. Only compiled conditions, orders and values of
    columns need `functions`."""

    def __init__(
        self,
        db: Database,
        filters: Filters,
        conditions: Iterable[Condition] = (),
        now: float = 0.0,
        functions: Functions | None = None,
    ) -> None:
        self._db = db
        self._filters = filters
        self._is_plain = not conditions
        self._conditions = [*_of_filters(filters), *conditions]
        self._next_states = {job: after for job, (_, after) in interrupted(db).items()}
        # With such jobs every row is read: their state is not that of the index.
        self._source = "jobs j"
        if self._next_states:
            self._source = f"(SELECT {_USED}, {STATE} AS state FROM jobs j) j"
        self._values: dict[str, object] = {"now": now, "boots": json.dumps(self._next_states)}
        create = db.connection.create_function
        create("stoker_has", 3, _has_text, deterministic=True)
        if functions is not None:
            create("stoker_command", 2, functions.command, deterministic=True)
            create("stoker_result", 4, functions.result, deterministic=True)
            create("stoker_param", 3, _command_param, deterministic=True)
            create("stoker_floor", 2, _floor_divided, deterministic=True)
            create("stoker_rest", 2, _remainder, deterministic=True)

    def ids(
        self, order: Order = NEWEST_FIRST, *, before: int | None = None, offset: int = 0, limit: int
    ) -> list[int]:
        """Ids in order: by columns (name, whether descending), then the newest first."""
        if self._is_plain and not offset and order[0][0] == "id":
            return self._by_state(order, before, limit)
        rows = self._select("j.id", "", order, before, offset, limit)
        return [int(str(row[0])) for row in rows]

    def _by_state(self, order: Order, before: int | None, limit: int) -> list[int]:
        """Ids in order, by one scan of an index for each state."""
        states = self._filters.states
        if states is None and self._filters.sweep is not None:
            states = STATES  # the index of sweeps has the states before the ids
        scans: list[list[Condition]] = [[]]
        if states is not None:
            moved = self._next_states
            stored = [Condition("j.state = :state", {"state": state}, "") for state in states]
            others = [Condition(f"NOT {_among('moved')}", {"moved": id_list(moved)}, "")]
            scans = [[one, *(others if moved else ())] for one in stored]
            if moved:
                arrived = id_list(job for job, after in moved.items() if after in states)
                scans.append([Condition(_among("arrived"), {"arrived": arrived}, "")])
        rest = _of_filters(self._filters._replace(states=None))
        rows: list[tuple[object, ...]] = []
        with self._db.reading():  # otherwise a job that changes its state could appear twice
            for scan in scans:
                rows += self._select(
                    "j.id", "", order, before, 0, limit, conditions=[*scan, *rest], source="jobs j"
                )
        found = sorted((int(str(row[0])) for row in rows), reverse=order[0][1])
        return found[:limit]

    def values(self, names: list[str], order: Order, limit: int) -> list[tuple[object, ...]]:
        """The values of columns, in order."""
        found = [column(name) for name in names]
        joins = "".join(one.joins for one in found)
        picked = ", ".join(_TAG_LIST if one.kind == TAGS else one.sql for one in found) or "1"
        rows = self._select(picked, joins, order, None, 0, limit)
        return [tuple(_plain(value) for value in row) for row in rows]

    def values_of(self, ids: list[int], names: list[str]) -> dict[int, dict[str, object]]:
        """The values of columns of single jobs, by id."""
        found = [column(name) for name in names]
        joins = joins_of("".join(one.joins for one in found))
        picked = "".join(", " + (_TAG_LIST if one.kind == TAGS else one.sql) for one in found)
        rows = self._db.execute(
            f"SELECT j.id{picked} FROM {self._source} {joins}"
            " WHERE j.id IN (SELECT value FROM json_each(:ids))",
            {"ids": id_list(ids), **self._values},
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
        order: Order,
        before: int | None,
        offset: int,
        limit: int,
        *,
        conditions: list[Condition] | None = None,
        source: str | None = None,
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
        where, tables, values = self._where(needed, conditions)
        if before is not None:
            where = f"{where or ' WHERE 1'} AND j.id < :before"
            values["before"] = before
        sql = (
            f"SELECT {picked} FROM {source or self._source} {tables}{where}"
            f" ORDER BY {', '.join(terms)} LIMIT :limit OFFSET :offset"
        )
        return self._db.execute(sql, {**values, "limit": limit, "offset": offset}).fetchall()

    def _where(
        self, joins: str, conditions: list[Condition] | None = None
    ) -> tuple[str, str, dict[str, object]]:
        values = dict(self._values)
        conditions = self._conditions if conditions is None else conditions
        for one in conditions:
            joins += one.joins
            values.update(one.values)
        where = " AND ".join(one.sql for one in conditions)
        return f" WHERE {where}" if where else "", joins_of(joins), values


def unfinished_and_latest(db: Database, filters: Filters, limit: int) -> list[int]:
    """The ids of unfinished jobs and, as far as there is room, of the latest finished ones."""

    def ids(states: tuple[str, ...], order: Order, limit: int) -> list[int]:
        return JobTable(db, filters._replace(states=states)).ids(order, limit=limit)

    with db.reading():
        current = ids((*ACTIVE, *WAITING), [("id", False)], limit)
        recent = ids(FINAL, NEWEST_FIRST, max(0, limit - len(current)))
    return sorted([*recent, *current])


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


def _among(name: str) -> str:
    return f"(j.id IN (SELECT value FROM json_each(:{name})))"


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
    if filters.among is not None:
        add(_among("among"), among=id_list(filters.among))
    if filters.newest is not None:
        add("j.id > (SELECT max(id) - :newest FROM jobs)", newest=filters.newest)
    if filters.text:
        add("stoker_has(j.argv, j.name, :text)", text=to_bytes(filters.text.lower()))
    return found


def _command_param(argv: bytes, shell: int, name: str) -> str | int | float | None:
    """A parameter in the command of a job; None if it has none of this name."""
    if name.encode() not in argv:
        return None
    from stoker.text.commands.command_params import command_params

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


def _floor_divided(left: float | None, right: float | None) -> float | None:
    """`//` for SQL; None for missing values and division by zero."""
    try:
        return None if left is None or right is None else left // right
    except (ZeroDivisionError, OverflowError):
        return None


def _remainder(left: float | None, right: float | None) -> float | None:
    """`%` for SQL, as Python computes it."""
    try:
        return None if left is None or right is None else left % right
    except (ZeroDivisionError, OverflowError):
        return None
