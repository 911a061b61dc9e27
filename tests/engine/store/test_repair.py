"""Repair of damaged files: readable rows are restored, and no job is started twice."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stoker.engine.store import attempts, job_queries, meta
from stoker.engine.store.database import SCHEMA_VERSION, open_database
from stoker.engine.store.profiles import Profiles
from stoker.engine.store.repair import repair
from stoker.engine.store.repair.rebuild import JournaledStart
from stoker.engine.store.repair.salvage import Salvage, fits
from stoker.engine.store.repair.sqlite_pages import TABLE_LEAF, Pages
from stoker.errors import Conflict
from tests.engine.store.builders import a_spec, add
from tests.engine.store.damage import (
    WAYS,
    Damage,
    build,
    flip_bytes,
    overwrite_block,
    truncate_log,
    zero_pages,
)
from tests.engine.store.older_schema import an_older_queue

Known = dict[int, tuple[bytes, str]]
JOBS = 150
SEEDS = 3


@pytest.fixture(scope="module")
def sound(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Path, Known]]:
    folder = tmp_path_factory.mktemp("sound")
    for name, has_log in (("with_log", True), ("plain", False)):
        (folder / name).mkdir()
        known = build(folder / name, JOBS, has_log)
    yield folder, known


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_repair_of_random_damage_loses_little_and_starts_nothing_twice(
    sound: tuple[Path, Known], tmp_path: Path, way: Damage
) -> None:
    source, known = sound
    for seed in range(SEEDS):
        folder = tmp_path / str(seed)
        has_log = "log" in way.__name__ or seed % 2 == 1
        shutil.copytree(source / ("with_log" if has_log else "plain"), folder)
        way(folder / "queue.db", random.Random(seed))
        done = repair.repair(str(folder), repair.set_aside(str(folder)), [])
        db = open_database(str(folder))
        assert db.value("PRAGMA integrity_check") == "ok"
        assert db.value("PRAGMA user_version") == SCHEMA_VERSION
        rows = db.execute("SELECT id, argv, state FROM jobs").fetchall()
        assert done.jobs == len(rows) == done.salvaged + done.from_snapshot
        right = {id for id, argv, _ in rows if known.get(id, (b"", ""))[0] == argv}
        if "log" not in way.__name__:
            intact = jobs_on_intact_pages(source / ("with_log" if has_log else "plain"), folder)
            assert intact <= right, (way, seed, done)
        least = 1 / 3 if "truncate" in way.__name__ else 0.9  # the snapshot alone has a third
        if way is overwrite_block:
            least = len(intact | set(range(1, JOBS // 3 + 1))) / JOBS
        assert len(right) >= least * JOBS, (way, seed, done)
        ran = {id for id, (_, state) in known.items() if state == "done"}
        again = [id for id, _, state in rows if state == "queued" and id in ran]
        assert again == [], (way, seed)
        missing = set(known) - {row[0] for row in rows}
        # A log that was cut off between two transactions looks like one that ended there.
        is_said = missing <= set(done.missing) or not done.missing_is_known
        assert is_said or way is truncate_log, (way, seed)
        [new] = add(db, a_spec("new"))
        assert new > max(known)  # no id is given out twice
        db.close()


def jobs_on_intact_pages(sound: Path, repaired: Path) -> set[int]:
    """The jobs whose page in the sound queue is found unchanged in the damaged files."""
    [aside] = repaired.glob("damaged-*")
    data, log = ((sound / name).read_bytes() if (sound / name).exists() else b""
                 for name in ("queue.db", "queue.db-wal"))  # fmt: skip
    left = b"".join(path.read_bytes() for path in sorted(aside.glob("queue.db*")))
    jobs = Salvage(data, log, {}).layouts["jobs"]
    pages = Pages(data, log)
    intact: set[int] = set()
    for number in set(range(2, pages.count + 1)) - pages.free():
        if pages.kind(number) == TABLE_LEAF and pages.page(number) in left:
            rows = pages.rows(number)[0]
            if rows and all(fits(jobs, values) for _, values in rows):
                intact |= {rowid for rowid, _ in rows}
    return intact


def test_repair_of_a_damaged_index_keeps_everything_as_it_was(tmp_path: Path) -> None:
    known = build(tmp_path, 60)
    db = open_database(str(tmp_path))
    page = int(str(db.value("SELECT rootpage FROM sqlite_master WHERE name = 'jobs_by_state'")))
    db.close()
    path = tmp_path / "queue.db"
    data = bytearray(path.read_bytes())
    data[(page - 1) * 2048 : page * 2048] = bytes(2048)
    path.write_bytes(data)
    done = repair.repair(str(tmp_path), repair.set_aside(str(tmp_path)), [])
    assert (done.salvaged, done.from_snapshot, done.held, done.missing) == (60, 0, 0, ())
    db = open_database(str(tmp_path))
    rows = db.execute("SELECT id, argv, state FROM jobs").fetchall()
    assert {id: (argv, state) for id, argv, state in rows} == known
    db.close()


@pytest.mark.usefixtures("older_step")
def test_repair_of_an_older_schema_without_a_snapshot_migrates_its_rows(tmp_path: Path) -> None:
    an_older_queue(tmp_path)
    path = tmp_path / "queue.db"
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'jobs_by_state'"
        ((page,),) = connection.execute(query).fetchall()
        ((size,),) = connection.execute("PRAGMA page_size").fetchall()
    data = bytearray(path.read_bytes())
    data[(page - 1) * size : page * size] = bytes(size)
    path.write_bytes(data)
    done = repair.repair(str(tmp_path), repair.set_aside(str(tmp_path)), [])
    assert (done.salvaged, done.held, done.missing) == (3, 0, ())
    db = open_database(str(tmp_path))
    assert [job_queries.job(db, id).fair_share_group for id in (1, 2, 3)] == ["", "sweep:b", ""]
    estimate = Profiles(db).estimates([1]).of(1)
    assert estimate is not None and estimate.seconds == 60.0 and estimate.is_steady
    db.close()


def test_attempts_in_the_journal_are_not_started_again(tmp_path: Path) -> None:
    db = open_database(str(tmp_path))
    ids = add(db, *(a_spec(f"job {n}") for n in range(1, 4)))
    db.close()
    path = tmp_path / "queue.db"
    flip_bytes(path, random.Random(1))
    began = [
        JournaledStart(7, ids[1], 1, 5.0, 6.0, "boot", (0,)),
        JournaledStart(9, 17, 2, 5.0, 6.0, "boot", (0, 1)),  # of a job whose record is lost
    ]
    data = bytearray(path.read_bytes())
    data[:100] = bytes(100)
    path.write_bytes(data)
    done = repair.repair(str(tmp_path), repair.set_aside(str(tmp_path)), began, tag=1234)
    assert done.from_journal == 1
    db = open_database(str(tmp_path))
    open_attempts = {one.attempt: one for one in attempts.open_attempts(db)}
    assert sorted(open_attempts) == [7, 9]
    assert (open_attempts[9].job, open_attempts[9].devices) == (17, (0, 1))
    assert job_queries.job(db, 17).name == "record-lost"
    assert meta.tag_base(db) == 1234
    assert attempts.next_attempt(db) > 9
    db.close()


def test_damaged_files_are_kept_as_they_were(tmp_path: Path) -> None:
    build(tmp_path, 30)
    path = tmp_path / "queue.db"
    zero_pages(path, random.Random(5))
    before = [path.read_bytes(), (tmp_path / "queue.db-wal").read_bytes()]
    done = repair.repair(str(tmp_path), repair.set_aside(str(tmp_path)), [])
    kept = Path(done.moved_to)
    assert [(kept / "queue.db").read_bytes(), (kept / "queue.db-wal").read_bytes()] == before


def test_repair_changes_nothing_if_another_process_writes_meanwhile(tmp_path: Path) -> None:
    build(tmp_path, 30)
    aside = repair.set_aside(str(tmp_path))
    path = tmp_path / "queue.db"
    path.write_bytes(path.read_bytes() + b"\0" * 2048)
    before = path.read_bytes()
    with pytest.raises(Conflict, match="was changed during the repair"):
        repair.repair(str(tmp_path), aside, [])
    assert path.read_bytes() == before
    assert not (tmp_path / "repairing.db").exists()
