"""Backends besides this host: their kind, options and what was last seen of them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from stoker.engine.store.database import Database
from stoker.features.backends.nodes import Node
from stoker.record import Record
from stoker.text.byte_text import maybe_bytes, maybe_text, to_text

_COLUMNS = "name, kind, options, environment, folder, nodes, problem, checked_at"


class BackendRow(Record):
    name: str
    kind: str
    options: dict[str, str]
    environment: dict[str, str]  # variables to reach its engine
    folder: str | None  # files of its jobs; None: the state folder
    nodes: tuple[Node, ...]  # as last seen
    problem: str | None
    checked_at: float | None


def backends(db: Database) -> list[BackendRow]:
    """Return all backends that were added, by name."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM backends WHERE is_removed = 0 ORDER BY name")
    return [_row(*row) for row in rows]


def backend(db: Database, name: str) -> BackendRow | None:
    """Return a backend; None if there is none of that name."""
    row = db.execute(
        f"SELECT {_COLUMNS} FROM backends WHERE name = ? AND is_removed = 0", (name,)
    ).fetchone()
    return None if row is None else _row(*row)


def kind_and_problem(db: Database, name: str) -> tuple[str, str | None] | None:
    """Return the kind and the problem of a backend, without reading its nodes; None if removed."""
    row: tuple[str, str | None] | None = db.execute(
        "SELECT kind, problem FROM backends WHERE name = ? AND is_removed = 0", (name,)
    ).fetchone()
    return row


def _row(
    name: str,
    kind: str,
    options: str,
    environment: str,
    folder: bytes | None,
    nodes: str | None,
    problem: str | None,
    checked_at: float | None,
) -> BackendRow:
    return BackendRow(
        name=name,
        kind=kind,
        options=json.loads(options),
        environment=json.loads(environment),
        folder=maybe_text(folder),
        nodes=tuple(Node(**node) for node in json.loads(nodes or "[]")),
        problem=problem,
        checked_at=checked_at,
    )


def add(
    db: Database,
    name: str,
    kind: str,
    options: dict[str, str],
    folder: str | None,
    environment: dict[str, str] | None = None,
) -> None:
    """Add a backend, or replace one of the same name."""
    db.execute(
        "INSERT OR REPLACE INTO backends (name, kind, options, environment, folder)"
        " VALUES (?, ?, ?, ?, ?)",
        (
            name,
            kind,
            json.dumps(options, sort_keys=True),
            json.dumps(environment or {}),
            maybe_bytes(folder),
        ),
    )


def folder_with_files(db: Database, name: str) -> str | None:
    """Return the folder with the files of jobs of a backend, also of one that was removed.

    None if it has no jobs or no folder of its own.
    """
    row = db.execute(
        "SELECT folder FROM backends b WHERE name = ? AND EXISTS (SELECT 1 FROM request_groups g"
        " JOIN jobs j ON j.request_group = g.id WHERE g.backend = b.name)",
        (name,),
    ).fetchone()
    return None if row is None else maybe_text(row[0])


def remove(db: Database, name: str) -> None:
    """Remove a backend. Its folder stays known, because it holds the logs of finished jobs."""
    db.execute("UPDATE backends SET is_removed = 1 WHERE name = ?", (name,))


def record_nodes(db: Database, name: str, nodes: Iterable[Node], now: float) -> None:
    text = json.dumps([node._asdict() for node in nodes])
    db.execute(
        "UPDATE backends SET nodes = ?, checked_at = ? WHERE name = ?",
        (text, now, name),
    )


def record_problem(db: Database, name: str, problem: str | None, now: float) -> None:
    """Record why a backend cannot be reached; None: it can."""
    db.execute(
        "UPDATE backends SET problem = ?, checked_at = ? WHERE name = ?", (problem, now, name)
    )


def unfinished_jobs(db: Database, name: str) -> int:
    """Return how many jobs of a backend wait or run."""
    return int(
        str(
            db.value(
                "SELECT count(*) FROM jobs j JOIN request_groups g ON g.id = j.request_group"
                " WHERE g.backend = ? AND j.state IN"
                " ('held', 'queued', 'submitted', 'starting', 'running', 'stopping')",
                (name,),
            )
        )
    )


def files_dir(db: Database, name: str) -> str | None:
    """Return the folder with the files of jobs of a backend; None: the state folder."""
    row = db.execute(
        "SELECT folder FROM backends WHERE name = ? AND is_removed = 0", (name,)
    ).fetchone()
    return None if row is None else maybe_text(row[0])


def needs_driver(db: Database) -> list[str]:
    """Return the backends with jobs to submit, to watch or to cancel."""
    rows = db.execute(
        "SELECT name FROM backends b WHERE EXISTS (SELECT 1 FROM allocations a"
        " WHERE a.backend = b.name AND a.state != 'ended')"
        " OR EXISTS (SELECT 1 FROM request_groups g WHERE g.backend = b.name"
        " AND EXISTS (SELECT 1 FROM jobs WHERE ready = 1 AND request_group = g.id)) ORDER BY name"
    )
    return [row[0] for row in rows]


def folders(db: Database) -> list[str]:
    """Return the folders with files of jobs, also of backends that were removed."""
    rows = db.execute("SELECT DISTINCT folder FROM backends WHERE folder IS NOT NULL")
    return [to_text(row[0]) for row in rows]
