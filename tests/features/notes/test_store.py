"""Notes, stars and tags of jobs and sweeps in the database."""

from __future__ import annotations

from pathlib import Path

from stoker.engine.store import changes, job_queries
from stoker.engine.store.database import Database, open_database
from stoker.engine.store.job_table import Filters, JobTable
from stoker.engine.store.repair import backups, repair
from stoker.engine.store.submit import context_id
from stoker.features.notes import store as notes
from stoker.features.notes.store import JOB, SWEEP
from stoker.features.sweeps import store as sweeps
from stoker.text.selectors import parse_selector
from tests.engine.store.builders import CONTEXT, a_spec, a_store, add


def _write(db: Database, text: str, **options: object) -> notes.Note:
    with db.transaction():
        return notes.set_note(db, JOB, 1, text, 5.0, **options)  # type: ignore[arg-type]


def _sweep(db: Database, name: str) -> int:
    columns: dict[str, object] = {
        "key": "k", "spec": "{}", "base": "{}", "context": context_id(db, CONTEXT), "is_driven": 0,
    }  # fmt: skip
    return sweeps.save(db, name, 0.0, columns)


def test_note_keeps_the_text_before_the_last_edit(tmp_path: Path) -> None:
    db = a_store(tmp_path)
    add(db, a_spec())
    assert notes.note(db, JOB, 1) == notes.NONE
    _write(db, "first")
    _write(db, "second")
    _write(db, "second, longer", is_continued=True)
    note = notes.note(db, JOB, 1)
    assert (note.text, note.revision, note.changed_at) == ("second, longer", 3, 5.0)
    assert note.previous == "first"  # not each state of the text while it was typed


def test_last_writer_of_a_note_wins(tmp_path: Path) -> None:
    db = a_store(tmp_path)
    add(db, a_spec())
    _write(db, "short")
    _write(db, "a much longer note from another window")
    assert _write(db, "short, mine").text == "short, mine"
    assert notes.note(db, JOB, 1).previous == "a much longer note from another window"


def test_equal_text_changes_nothing(tmp_path: Path) -> None:
    db = a_store(tmp_path)
    add(db, a_spec())
    _write(db, "same")
    assert _write(db, "same").revision == 1


def test_stars_select_jobs_and_filter_the_history(tmp_path: Path) -> None:
    db = a_store(tmp_path)
    add(db, *[a_spec(name="a", tags=("t",)), a_spec(name="a"), a_spec()])
    assert job_queries.select(db, parse_selector("starred")) == []
    with db.transaction():
        assert notes.set_star(db, JOB, [1, 3], True) == 2
        assert notes.set_star(db, JOB, [3], True) == 0
    assert job_queries.select(db, parse_selector("starred")) == [1, 3]
    assert JobTable(db, Filters(starred=True)).ids(limit=10) == [3, 1]
    assert JobTable(db, Filters(starred=True, name="a")).ids(limit=10) == [1]
    assert JobTable(db, Filters(starred=True, tag="t")).ids(limit=10) == [1]
    queued = Filters(states=("queued",), starred=True)
    assert JobTable(db, queued).ids([("id", False)], limit=9) == [1, 3]
    with db.transaction():
        assert notes.set_star(db, JOB, [1, 2], False) == 1
    assert notes.starred(db, JOB, [1, 2, 3]) == {3}


def test_removed_jobs_and_sweeps_leave_no_note_tag_or_star(tmp_path: Path) -> None:
    db = a_store(tmp_path)
    add(db, a_spec(tags=("t",)))
    with db.transaction():
        sweep = _sweep(db, "lrs")
        for kind, id in ((JOB, 1), (SWEEP, sweep)):
            notes.set_note(db, kind, id, "text", 1.0)
            notes.set_star(db, kind, [id], True)
            assert notes.change_tags(db, kind, id, ["t", "u"], ["x"])
    assert notes.known_tags(db, 9) == [("t", 2), ("u", 2)]
    with db.transaction():
        db.execute("UPDATE jobs SET state = 'done', ready = 0")
        sweeps.remove(db, sweep)
    changes.remove(db, [1])
    for table in ("tags", "sweep_tags", "job_annotations", "sweep_annotations"):
        assert db.value(f"SELECT count(*) FROM {table}") == 0, table


def test_notes_survive_a_repair_and_are_in_snapshots(tmp_path: Path) -> None:
    db = open_database(str(tmp_path), durable=False)
    add(db, *[a_spec() for _ in range(40)])
    with db.transaction():
        sweep = _sweep(db, "lrs")
        notes.set_note(db, JOB, 7, "why it diverged", 1.0)
        notes.set_note(db, SWEEP, sweep, "the question", 1.0)
        notes.set_star(db, JOB, [7], True)
        notes.change_tags(db, SWEEP, sweep, ["paper"], [])
    backups.take(db)
    page = int(str(db.value("SELECT rootpage FROM sqlite_master WHERE name = 'job_annotations'")))
    size = int(str(db.value("PRAGMA page_size")))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    path = tmp_path / "queue.db"
    data = bytearray(path.read_bytes())
    data[(page - 1) * size : page * size] = bytes(size)  # what is left is in the snapshot
    path.write_bytes(data)
    repair.repair(str(tmp_path), repair.set_aside(str(tmp_path)), [])
    db = a_store(tmp_path)
    note = notes.note(db, JOB, 7)
    assert (note.text, note.starred) == ("why it diverged", True)
    assert notes.note(db, SWEEP, sweep).text == "the question"
    assert notes.tags(db, SWEEP, sweep) == ["paper"]
