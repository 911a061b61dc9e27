"""The database file: permissions, schema versions and error messages."""

from __future__ import annotations

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stoker.engine.model import Context
from stoker.engine.store import contexts, job_queries, machines
from stoker.engine.store.database import SCHEMA_VERSION, open_database
from stoker.engine.store.machines import Machine
from stoker.engine.store.repair import backups, repair
from stoker.engine.store.submit import Submission
from stoker.errors import Broken, TryLater
from tests.engine.store.builders import a_spec, a_store, add


def test_database_and_its_log_are_private(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        db = a_store(tmp_path)
        add(db, a_spec())
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        os.umask(mask)
    assert set(modes.values()) == {0o600}, modes


def test_newer_schema_is_refused_and_not_changed(tmp_path: Path) -> None:
    a_store(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "queue.db")
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(Broken, match="newer Stoker"):
        open_database(str(tmp_path))
    connection = sqlite3.connect(tmp_path / "queue.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 1,)
    connection.close()


def test_file_that_is_not_a_database_is_reported_as_damaged(tmp_path: Path) -> None:
    (tmp_path / "queue.db").write_bytes(b"this is not a database" * 1000)
    with pytest.raises(Broken, match="damaged"):
        open_database(str(tmp_path))


def test_writer_that_gets_no_lock_raises_an_error_and_changes_nothing(tmp_path: Path) -> None:
    blocker = a_store(tmp_path)
    blocker.execute("BEGIN IMMEDIATE")
    db = a_store(tmp_path, timeout=0.0)
    with pytest.raises(TryLater, match="lock"):
        add(db, a_spec())
    blocker.execute("ROLLBACK")
    assert job_queries.counts(db) == {}


def test_text_that_is_not_utf8_comes_back_byte_by_byte(tmp_path: Path) -> None:
    db = a_store(tmp_path)
    odd = os.fsdecode(b"caf\xe9 \xff\n\t\xf0\x9f\x9a\x82")
    context = Context(odd, ((odd, odd),), 0o022, "/bin/sh")
    [job] = Submission(db).add([a_spec(odd, name=odd)._replace(context=context)], 1.0).ids
    row = job_queries.job(db, job)
    assert (row.argv[0], row.name, row.cwd) == (odd, odd, odd)
    assert contexts.load_context(db, 1) == context


def test_batch_shares_one_context_and_ids_are_never_reused(tmp_path: Path) -> None:
    from stoker.engine.store import changes

    db = a_store(tmp_path)
    ids = add(db, *[a_spec() for _ in range(100)])
    assert ids == list(range(1, 101))
    assert db.value("SELECT count(*) FROM contexts") == 1
    changes.cancel(db, ids, 1.0)
    changes.remove(db, ids)
    assert add(db, a_spec()) == [101]


def test_machines_with_equal_checksums_stay_apart(tmp_path: Path) -> None:
    db = a_store(tmp_path)
    first = Machine("a", "1", "3.11", "", "")
    id = machines.machine_id(db, first)
    assert machines.machine_id(db, first) == id
    db.execute("UPDATE machines SET host = 'another' WHERE id = ?", (id,))
    assert machines.machine_id(db, first) == machines.machine_id(db, first) == id + 1
    assert db.execute("SELECT host FROM machines ORDER BY id").fetchall() == [("another",), ("a",)]


def test_repeated_dedupe_key_returns_the_existing_job(tmp_path: Path) -> None:
    db = a_store(tmp_path)
    [first] = add(db, a_spec(dedupe="key"))
    receipt = Submission(db).add([a_spec(dedupe="key"), a_spec(dedupe="other")], 1.0)
    assert receipt.existing == (first,) and receipt.added == 1


def test_restored_snapshot_has_the_waiting_jobs(tmp_path: Path) -> None:
    db = a_store(tmp_path)
    [job] = add(db, a_spec())
    backups.take(db)
    add(db, a_spec())
    db.close()
    (tmp_path / "queue.db").write_bytes(b"\0" * 8192)
    done = repair.repair(str(tmp_path), repair.set_aside(str(tmp_path)), [])
    assert done.snapshot is not None and (done.jobs, done.from_snapshot) == (1, 1)
    assert os.path.exists(os.path.join(done.moved_to, "queue.db"))
    restored = a_store(tmp_path)
    assert job_queries.job(restored, job).state == "held"


def test_only_three_snapshots_are_kept(tmp_path: Path) -> None:
    db = a_store(tmp_path)
    for age in (500, 400, 300, 200):
        backups.take(db)
        newest = backups.newest(str(tmp_path))[0]
        os.utime(newest, times=(os.stat(newest).st_mtime - age,) * 2)
    backups.take(db)
    names = [os.path.basename(path) for path in backups.newest(str(tmp_path))]
    assert names == ["5.db", "4.db", "3.db"]


def test_frequent_snapshots_replace_only_the_newest(tmp_path: Path) -> None:
    db = a_store(tmp_path)
    for _ in range(5):
        backups.take(db)
    names = [os.path.basename(path) for path in backups.newest(str(tmp_path))]
    assert names == ["5.db", "1.db"]


def test_snapshots_taken_at_the_same_time_do_not_share_a_file(tmp_path: Path) -> None:
    db = a_store(tmp_path)
    add(db, *[a_spec() for _ in range(500)])

    def take_ten(_: int) -> None:
        other = open_database(str(tmp_path))
        for _ in range(10):
            backups.take(other)
        other.close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(take_ten, range(2)))  # raises what one of them raised
    paths = backups.newest(str(tmp_path))
    assert [os.path.basename(path) for path in paths] == ["20.db", "1.db"]
    assert all(backups.is_sound(path) for path in paths)


def test_job_that_moves_between_two_states_is_listed_once(tmp_path: Path) -> None:
    db, other = a_store(tmp_path), a_store(tmp_path)
    [job] = add(db, a_spec(held=True))
    walks: list[str] = []

    def before(statement: str) -> None:
        """Release the job after the scan of one state and before the next."""
        walks.extend([statement] if "j.state = " in statement else [])
        if len(walks) == 2:
            other.execute("UPDATE jobs SET state = 'queued' WHERE id = ?", (job,))

    db.connection.set_trace_callback(before)
    assert [row.id for row in job_queries.jobs_in_states(db, ("held", "queued"), 10)] == [job]
    assert job_queries.job(other, job).state == "queued"
