"""Read the rows of a damaged database.

A row on a page that is reachable from the b-tree of its table is what SQLite would return. A row on
an unreachable page (its parent page is damaged) may be an old copy: it is `doubtful`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from stoker.engine.store.repair.sqlite_pages import (
    INDEX_INTERIOR,
    INDEX_LEAF,
    TABLE_INTERIOR,
    TABLE_LEAF,
    Pages,
    Unreadable,
    Value,
)
from stoker.record import Record

Row = dict[str, Value]


class Layout(Record):
    """The columns of a table in the order of its records."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    required: tuple[bool, ...]
    defaults: tuple[Value, ...]
    rowid: str | None  # the column that is an alias of the row id
    key: tuple[str, ...]  # of a table WITHOUT ROWID; else empty


_SCHEMA = Layout(
    ("type", "name", "tbl_name", "rootpage", "sql"),
    ("TEXT", "TEXT", "TEXT", "INTEGER", "TEXT"),
    (True, True, True, True, False),
    (None,) * 5,
    None,
    (),
)


class Table:
    def __init__(self) -> None:
        self.sure: dict[object, Row] = {}
        self.doubtful: dict[object, Row] = {}
        self.is_whole = False  # whether `sure` holds every row


class Salvage:
    """The tables of a damaged database.

    `statements` (name: CREATE TABLE) are used where the schema in the file is not readable.
    """

    def __init__(self, data: bytes, log: bytes, statements: dict[str, str]) -> None:
        self.pages = Pages(data, log)
        self.log_is_whole = self.pages.log_is_whole
        self._seen: set[int] = set()
        self._bad = 0  # number of unreadable pages and cells
        self.creates: list[str] = []  # the statements of the file's schema, tables first
        roots, own = self._schema()
        self.has_schema = self._bad == 0 and bool(own)
        self.statements = own if self.has_schema else {**statements, **own}
        self.layouts = layouts(self.statements)
        self.tables = {name: Table() for name in self.layouts}
        for name, layout in self.layouts.items():
            if name in roots:
                self._bad = 0
                self._walk(roots[name], layout, self.tables[name].sure)
                self.tables[name].is_whole = self._bad == 0
        for root in [root for name, root in roots.items() if name not in self.layouts]:
            self._mark(root)  # indexes
        if not all(table.is_whole for table in self.tables.values()):
            self._read_unreachable_pages()

    def user_version(self) -> int:
        """Return the schema version in the header; 0 if there is none."""
        return int.from_bytes(self.pages.header()[60:64], "big")

    # -- the schema ----------------------------------------------------------------------------

    def _schema(self) -> tuple[dict[str, int], dict[str, str]]:
        """Return the root page of each table and index, and CREATE TABLE of each table."""
        roots: dict[str, int] = {}
        statements: dict[str, str] = {}
        rows: dict[object, Row] = {}
        self._walk(1, _SCHEMA, rows)
        for row in rows.values():
            name, root, sql = row["name"], row["rootpage"], row["sql"]
            if isinstance(name, str) and isinstance(root, int) and 1 < root <= self.pages.count:
                roots[name] = root
                if isinstance(sql, str) and not name.startswith("sqlite_"):
                    is_table = row["type"] == "table"
                    self.creates.insert(0 if is_table else len(self.creates), sql)
                    if is_table:
                        statements[name] = sql
        try:
            layouts(statements)
        except sqlite3.Error:
            statements = {}
        return roots, statements

    # -- trees ---------------------------------------------------------------------------------

    def _walk(self, root: int, layout: Layout, rows: dict[object, Row]) -> None:
        waiting = [root]
        while waiting:
            number = waiting.pop()
            if number in self._seen:
                self._bad += 1  # the page has two parents, so one of them is damaged
                continue
            self._seen.add(number)
            try:
                kind = self.pages.kind(number)
                if kind in (TABLE_INTERIOR, INDEX_INTERIOR):
                    waiting += reversed(self.pages.children(number))
                if kind == TABLE_LEAF and not layout.key:
                    found, bad = self.pages.rows(number)
                    self._bad += bad
                    for rowid, values in found:
                        if rowid in rows or not fits(layout, values):
                            self._bad += 1  # a page of another table, or a damaged row
                        else:
                            rows[rowid] = as_row(layout, rowid, values)
                elif kind in (INDEX_LEAF, INDEX_INTERIOR) and layout.key:
                    entries, bad = self.pages.entries(number)
                    self._bad += bad
                    for values in entries:
                        row = as_row(layout, None, values)
                        rows[tuple(row[name] for name in layout.key)] = row
                elif kind not in (TABLE_INTERIOR, INDEX_INTERIOR):
                    raise Unreadable(f"page {number} is of the wrong kind")
            except (Unreadable, IndexError, ValueError):
                self._bad += 1

    def _mark(self, root: int) -> None:
        """Mark the pages of an index as visited."""
        waiting = [root]
        while waiting:
            number = waiting.pop()
            if number in self._seen:
                continue
            if self.pages.kind(number) in (INDEX_LEAF, INDEX_INTERIOR):
                self._seen.add(number)
                if self.pages.kind(number) == INDEX_INTERIOR:
                    try:
                        waiting += self.pages.children(number)
                    except (Unreadable, IndexError):
                        continue

    # -- unreachable pages ---------------------------------------------------------------------

    def _read_unreachable_pages(self) -> None:
        for number in set(range(1, self.pages.count + 1)) - self._seen - self.pages.free():
            kind = self.pages.kind(number)
            try:
                if kind == TABLE_LEAF:
                    self._add_doubtful(self.pages.rows(number)[0])
                elif kind == INDEX_LEAF:
                    self._find_meta(self.pages.entries(number)[0])
            except (Unreadable, IndexError):
                continue

    def _add_doubtful(self, rows: list[tuple[int, list[Value]]]) -> None:
        """Add the rows of one page to the only table that all of them fit."""
        fitting = [
            (sum(fits(layout, values) for _, values in rows), name)
            for name, layout in self.layouts.items()
            if not layout.key and not self.tables[name].is_whole
        ]
        if not rows or not fitting:
            return
        count, name = max(fitting)
        if count * 2 <= len(rows):
            return
        table, layout = self.tables[name], self.layouts[name]
        for rowid, values in rows:
            if fits(layout, values) and rowid not in table.sure:
                row = as_row(layout, rowid, values)
                known = table.doubtful.get(rowid)
                if known is None or _age(row) > _age(known):
                    table.doubtful[rowid] = row

    def _find_meta(self, entries: list[list[Value]]) -> None:
        """Find rows of `meta` by their keys; other tables WITHOUT ROWID look like indexes."""
        keys = {values[0] for values in entries if len(values) == 2}
        if "tag" in keys and "next_job" in keys and "meta" in self.tables:
            for values in entries:
                if len(values) == 2 and isinstance(values[0], str):
                    row: Row = {"key": values[0], "value": values[1]}
                    self.tables["meta"].doubtful.setdefault((values[0],), row)


def layouts(statements: dict[str, str]) -> dict[str, Layout]:
    """Return the layout of each table. Raises sqlite3.Error for an invalid statement."""
    found = {}
    with closing(sqlite3.connect(":memory:")) as scratch:
        for name, sql in statements.items():
            if name.startswith("sqlite_"):
                continue
            scratch.execute(sql)
            info = scratch.execute(f"PRAGMA table_info('{name}')").fetchall()
            key = [row[1] for row in sorted(info, key=lambda row: row[5]) if row[5]]
            if "WITHOUT ROWID" in sql.upper():
                info.sort(key=lambda row: row[5] or len(info) + row[0])  # the key comes first
                rowid = None
            else:
                rowid = next((row[1] for row in info if row[5] and row[2] == "INTEGER"), None)
                key = []
            defaults = [_literal(scratch, row[4]) for row in info]
            found[name] = Layout(
                tuple(row[1] for row in info),
                tuple(row[2] for row in info),
                tuple(bool(row[3]) for row in info),
                tuple(defaults),
                rowid,
                tuple(key),
            )
    return found


def _literal(scratch: sqlite3.Connection, text: str | None) -> Value:
    if text is None:
        return None
    value: Value = scratch.execute(f"SELECT {text}").fetchone()[0]
    return value


def as_row(layout: Layout, rowid: int | None, values: list[Value]) -> Row:
    """Return values by column name; columns that were added later have their defaults."""
    row = dict(zip(layout.columns, layout.defaults or (None,) * len(layout.columns), strict=True))
    row.update(zip(layout.columns, values, strict=False))
    if layout.rowid is not None:
        row[layout.rowid] = rowid
    return row


def fits(layout: Layout, values: list[Value]) -> bool:
    """Whether a record could belong to this table."""
    if len(values) > len(layout.columns):
        return False
    missing = range(len(values), len(layout.columns))
    if any(layout.required[at] and layout.defaults[at] is None for at in missing):
        return False
    for name, kind, required, value in zip(
        layout.columns, layout.types, layout.required, values, strict=False
    ):
        if name == layout.rowid:
            if value is not None:
                return False
        elif value is None:
            if required:
                return False
        elif not isinstance(value, _PYTHON_TYPES.get(kind, object)):
            return False
    return len(values) > 1


_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "INTEGER": int,
    "REAL": (int, float),
    "TEXT": str,
    "BLOB": bytes,
}


def _age(row: Row) -> tuple[int, float]:
    """Return a sort key: of two copies of a job, the one that made more progress is newer."""
    attempts, ended = row.get("attempts"), row.get("ended_at")
    return (
        attempts if isinstance(attempts, int) else 0,
        float(ended) if isinstance(ended, int | float) else 0.0,
    )
