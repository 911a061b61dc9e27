"""Databases of older releases."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from stoker.core.model import Request
from stoker.store import attempts, job_queries, ready_jobs, request_groups
from stoker.store.database import SCHEMA_VERSION, Database
from stoker.store.profiles import Profiles
from tests.store.builders import a_spec, a_store, add

SCHEMAS = Path(__file__).parent / "schemas"


def an_old_queue(folder: Path) -> None:
    """Schema 1: a running job and two that wait, one of them for two GPUs."""
    connection = sqlite3.connect(folder / "queue.db")
    connection.executescript((SCHEMAS / "0001.sql").read_text())
    connection.executescript(
        "INSERT INTO meta VALUES ('tag', 5), ('next_job', 4), ('next_attempt', 1001),"
        " ('cpu_slots', 2);"
        "INSERT INTO contexts VALUES (1, 0, x'2f', x'', 18, x'2f62696e2f7368');"
        "INSERT INTO jobs (id, state, ready, gpus, priority, shell, argv, context, submitted_at,"
        " attempts, attempt) VALUES"
        " (1, 'running', 0, 1, 0, 1, x'61', 1, 1.0, 1, 1),"
        " (2, 'queued', 1, 1, 0, 1, x'62', 1, 1.0, 0, NULL),"
        " (3, 'queued', 1, 2, 7, 1, x'63', 1, 1.0, 0, NULL);"
        "INSERT INTO attempts (id, job, number, devices, claimed_at, boot)"
        " VALUES (1, 1, 1, '0', 1.0, 'boot');"
        "PRAGMA user_version = 1;"
    )
    connection.close()


def columns(db: Database) -> dict[str, set[str]]:
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: {row[1] for row in db.execute(f"PRAGMA table_info({name})")} for name in tables}


def indexes(db: Database) -> set[str]:
    rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
    return {row[0] for row in rows}


def test_database_of_schema_1_gets_the_current_tables(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    an_old_queue(tmp_path)
    db, new = a_store(tmp_path), a_store(tmp_path / "new")
    assert db.value("PRAGMA user_version") == SCHEMA_VERSION
    assert columns(db) == columns(new)
    assert indexes(db) == indexes(new)


def test_database_of_schema_2_gets_the_current_tables(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    connection = sqlite3.connect(tmp_path / "queue.db")
    connection.executescript((SCHEMAS / "0002.sql").read_text())
    connection.execute("INSERT INTO meta VALUES ('tag', 5), ('next_job', 4)")
    connection.commit()
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    db, new = a_store(tmp_path), a_store(tmp_path / "new")
    assert columns(db) == columns(new)
    assert indexes(db) == indexes(new)


def a_queue_of_schema_3(folder: Path) -> None:
    """Three jobs wait: without a tag, with one, and in a sweep; one profile is known."""
    connection = sqlite3.connect(folder / "queue.db")
    connection.executescript((SCHEMAS / "0003.sql").read_text())
    connection.executescript(
        "INSERT INTO meta VALUES ('tag', 5), ('next_job', 4);"
        "INSERT INTO contexts VALUES (1, 0, x'2f', x'', 18, x'2f62696e2f7368');"
        "INSERT INTO families (id, key, runs, seconds) VALUES (1, x'61', 3, 60.0);"
    )
    for id, fair_share_group in enumerate((b"", b"a", b"sweep:b"), 1):
        key = repr((1, None, 0, b"", b"", None, None, 0, b"", fair_share_group, 0)).encode()
        connection.execute(
            "INSERT INTO lines (id, key, gpus, exclusive, ids, prefer, is_auto, avoid, share,"
            " length) VALUES (?, ?, 1, 0, x'', x'', 0, x'', ?, 0)",
            (id, key, fair_share_group),
        )
        connection.execute(
            "INSERT INTO jobs (id, state, ready, line, family, priority, shell, argv, context,"
            " submitted_at) VALUES (?, 'queued', 1, ?, 1, 0, 1, x'61', 1, 1.0)",
            (id, id),
        )
    connection.execute("PRAGMA user_version = 3")
    connection.commit()
    connection.close()


def test_database_of_schema_3_gets_the_current_tables(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    a_queue_of_schema_3(tmp_path)
    db, new = a_store(tmp_path), a_store(tmp_path / "new")
    assert columns(db) == columns(new)
    assert indexes(db) == indexes(new)


def test_waiting_jobs_with_a_tag_leave_its_fair_share_group(tmp_path: Path) -> None:
    a_queue_of_schema_3(tmp_path)
    db = a_store(tmp_path)
    assert [job_queries.job(db, id).fair_share_group for id in (1, 2, 3)] == ["", "", "sweep:b"]
    # A group of that name would be another one, and new jobs join those without a tag.
    assert request_groups.group_id(db, Request(1), "a") not in (1, 2, 3)
    assert request_groups.group_id(db, Request(1), "") == 1


def test_profiles_of_an_old_queue_keep_their_estimates(tmp_path: Path) -> None:
    a_queue_of_schema_3(tmp_path)
    estimate = Profiles(a_store(tmp_path)).estimates([1]).of(1)
    assert estimate is not None and estimate.seconds == 60.0 and estimate.is_steady


def test_jobs_of_an_old_database_continue(tmp_path: Path) -> None:
    an_old_queue(tmp_path)
    db = a_store(tmp_path)
    [running] = attempts.open_attempts(db)
    assert (running.job, running.request.gpus, running.devices) == (1, 1, (0,))
    assert [job_queries.job(db, id).gpus for id in (1, 2, 3)] == [1, 1, 2]
    [new] = add(db, a_spec(gpus=2))
    narrow, wide = (ready_jobs.load_group(db, line) for line in ready_jobs.ready_groups(db))
    assert [job.id for job in ready_jobs.first(db, narrow, 10)] == [2]
    assert [job.id for job in ready_jobs.first(db, wide, 10)] == [
        3,
        new,
    ]  # alike: one line
