"""Databases of older releases."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from stoker.engine.store import attempts, job_queries, ready_jobs
from stoker.engine.store.database import SCHEMA_VERSION, Database
from stoker.engine.store.profiles import Profiles
from stoker.errors import Broken
from tests.engine.store.builders import a_spec, a_store, add
from tests.engine.store.older_schema import OLDER, an_older_queue


def columns(db: Database) -> dict[str, set[str]]:
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: {row[1] for row in db.execute(f"PRAGMA table_info({name})")} for name in tables}


def indexes(db: Database) -> set[str]:
    rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
    return {row[0] for row in rows}


@pytest.mark.usefixtures("older_step")
def test_database_of_an_older_schema_gets_the_current_tables(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    an_older_queue(tmp_path)
    db, new = a_store(tmp_path), a_store(tmp_path / "new")
    assert db.value("PRAGMA user_version") == SCHEMA_VERSION
    assert columns(db) == columns(new)
    assert indexes(db) == indexes(new)


@pytest.mark.usefixtures("older_step")
def test_step_that_changes_values_is_applied(tmp_path: Path) -> None:
    an_older_queue(tmp_path)
    estimate = Profiles(a_store(tmp_path)).estimates([1]).of(1)
    assert estimate is not None and estimate.seconds == 60.0 and estimate.is_steady


@pytest.mark.usefixtures("older_step")
def test_jobs_of_an_older_database_continue(tmp_path: Path) -> None:
    an_older_queue(tmp_path)
    with sqlite3.connect(tmp_path / "queue.db") as connection:
        connection.execute("UPDATE jobs SET state = 'running', ready = 0, attempt = 1 WHERE id = 1")
        connection.execute(
            "INSERT INTO attempts (id, job, number, devices, claimed_at, boot)"
            " VALUES (1, 1, 1, '0', 1.0, 'boot')"
        )
    connection.close()
    db = a_store(tmp_path)
    [running] = attempts.open_attempts(db)
    assert (running.job, running.request.gpus, running.devices) == (1, 1, (0,))
    assert [job_queries.job(db, id).gpus for id in (1, 2, 3)] == [1, 1, 2]
    assert [job_queries.job(db, id).fair_share_group for id in (1, 2, 3)] == ["", "sweep:b", ""]
    [new] = add(db, a_spec("b", gpus=2))
    groups = [ready_jobs.load_group(db, group) for group in ready_jobs.ready_groups(db)]
    ready = [[job.id for job in ready_jobs.first(db, group, 10)] for group in groups]
    assert sorted(ready) == [[2], [3, new]]  # the new job joins the group with its request


def test_schema_without_a_step_is_refused_and_not_changed(tmp_path: Path) -> None:
    an_older_queue(tmp_path)
    with pytest.raises(Broken, match=f"schema {OLDER}, which this Stoker cannot upgrade"):
        a_store(tmp_path)
    connection = sqlite3.connect(tmp_path / "queue.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (OLDER,)
    connection.close()
