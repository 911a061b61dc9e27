"""`stoker doctor --repair` with real processes: running jobs continue, and no job runs twice."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from stoker.engine.store.database import open_database
from stoker.engine.store.repair import backups
from tests.cli.helpers import Terminal, as_json
from tests.engine.store.damage import WAYS, Damage, zero_schema_page
from tests.helpers import Gate, is_alive
from tests.lab import Lab


def stop(lab: Lab) -> Path:
    """Stop the daemon, but not jobs and runner. The write-ahead log stays, as after a crash."""
    pid = lab.daemon_pid()
    reader = sqlite3.connect(lab.state_dir / "queue.db")
    # A second connection: the last one to close would remove the log.
    reader.execute("SELECT count(*) FROM jobs").fetchall()
    lab.ok("daemon", "stop")
    assert lab.daemon_pid() != pid
    path = lab.state_dir / "queue.db"
    copies = {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal")}
    reader.close()
    for suffix, data in copies.items():
        Path(f"{path}{suffix}").write_bytes(data)
    return path


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_running_jobs_continue_and_finished_jobs_stay_finished_after_a_repair(
    lab: Lab, way: Damage
) -> None:
    gate = Gate(lab.folder)
    runs = lab.folder / "runs"
    lines = "".join(f"echo {n} >> {runs}\n" for n in range(1, 13))
    lab.ok("submit", "-q", "-G0", "-f", "-", input=lines)
    assert lab.wait() == 0
    running = lab.submit(f"echo running >> {runs}; {gate.wait}; exit 6")
    (pid,) = gate.wait_for()
    lab.wait_until(lambda: lab.state(running) == "running")
    lab.ok("submit", "-q", "--hold", "-f", "-", input="true\n" * 9)
    assert len(lab.states()) == 22
    path = stop(lab)
    way(path, random.Random(11))
    done = lab.run("doctor", "--repair", "--json")
    if done.returncode == 1:  # SQLite finds no damage: a flipped bit in a text, a shorter log
        assert "the database is intact" in done.stdout + done.stderr
    else:
        assert done.returncode == 0, done
        report = as_json(done.stdout)
        assert report["jobs"] >= 12
        assert Path(report["moved_to"], "queue.db").exists()
    lab.ok("daemon", "start")
    assert is_alive(pid)
    gate.open()
    if running in lab.states():
        assert lab.wait(running) == 6
    lab.wait_until(lambda: not {"starting", "running"} & set(lab.states().values()))
    seen = runs.read_text().split()
    assert sorted(seen) == sorted(set(seen)), "a job ran twice"


def test_running_job_is_adopted_although_the_database_lost_its_start(lab: Lab) -> None:
    """A shortened write-ahead log is no damage for SQLite: the job is queued again."""
    gate = Gate(lab.folder)
    job = lab.submit(f"{gate.wait}; exit 6")
    (pid,) = gate.wait_for()
    lab.wait_until(lambda: lab.state(job) == "running")
    lab.ok("daemon", "stop")
    with closing(sqlite3.connect(lab.state_dir / "queue.db")) as db, db:
        db.execute("UPDATE jobs SET state = 'queued', ready = 1, attempt = NULL, attempts = 0")
        db.execute("DELETE FROM attempts")
    lab.ok("daemon", "start")
    lab.wait_until(lambda: lab.state(job) == "running")
    assert is_alive(pid)
    gate.open()
    assert lab.wait(job) == 6
    assert len(gate.arrived()) == 1


def test_running_job_is_adopted_although_the_restored_record_is_older(lab: Lab) -> None:
    """The snapshot has it as waiting; the journal and its processes show that it runs."""
    gate = Gate(lab.folder)
    lab.ok("daemon", "drain")
    job = lab.submit(f"{gate.wait}; exit 6")
    waiting = lab.submit("-G2", "true")
    db = open_database(str(lab.state_dir))
    backups.take(db)
    db.close()
    lab.ok("daemon", "resume")
    (pid,) = gate.wait_for()
    lab.ok("daemon", "stop")
    path = lab.state_dir / "queue.db"
    path.write_bytes(b"garbage " * 10_000)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    output = lab.ok("doctor", "--repair")
    assert "restored 2 jobs from the snapshot of " in output
    lab.ok("daemon", "start")
    lab.wait_until(lambda: lab.state(job) == "running")
    assert lab.state(waiting) == "held"
    assert len(gate.arrived()) == 1
    assert is_alive(pid)
    gate.open()
    assert lab.wait(job) == 6


def test_last_submit_before_damage_survives_in_a_snapshot(lab: Lab) -> None:
    """A snapshot follows the last change, also if nothing happens after it."""
    lab.ok("daemon", "drain")
    for number in range(1, 4):
        lab.submit("true")
        lab.wait_until(partial(_has_snapshot, lab, number))
    lab.ok("daemon", "stop")
    path = lab.state_dir / "queue.db"
    path.write_bytes(b"garbage " * 10_000)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    assert "restored 3 jobs from the snapshot of " in lab.ok("doctor", "--repair")
    assert lab.states() == {1: "held", 2: "held", 3: "held"}


def _has_snapshot(lab: Lab, jobs: int) -> bool:
    """Whether the newest snapshot has this many jobs."""
    for path in backups.newest(str(lab.state_dir))[:1]:
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
                return connection.execute("SELECT count(*) FROM jobs").fetchall() == [(jobs,)]
        except sqlite3.OperationalError:
            pass  # replaced by a newer one just now
    return False


def test_repair_asks_on_a_terminal_and_changes_nothing_unless_confirmed(lab: Lab) -> None:
    lab.submit("--hold", "true")
    path = lab.state_dir / "queue.db"
    zero_schema_page(path, random.Random(0))
    before = path.read_bytes()
    terminal = Terminal(lab, "doctor", "--repair")
    terminal.read_until("Repair it? [y/N] ")
    terminal.write(b"n\n")
    assert terminal.close() == 1
    assert "error: nothing was changed" in terminal.text
    assert path.read_bytes() == before
    assert not list(lab.state_dir.glob("damaged-*"))
    terminal = Terminal(lab, "doctor", "--repair")
    terminal.read_until("Repair it? [y/N] ")
    terminal.write(b"y\n")
    assert terminal.close() == 0
    assert "recovered 1 job from the damaged database" in terminal.text


def test_doctor_detects_a_database_that_is_older_than_the_journal(lab: Lab) -> None:
    lab.submit("--hold", "true")
    lab.ok("daemon", "stop")
    path = lab.state_dir / "queue.db"
    old = path.read_bytes()
    lab.ok("daemon", "start")
    lab.wait(lab.submit("echo newer"))
    lab.ok("daemon", "stop")
    path.write_bytes(old)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    done = lab.run("doctor")
    assert done.returncode == 1
    assert "bad   the database lacks records: job 2 was started, but is not in it\n" in done.stdout
    lab.ok("doctor", "--repair")
    lab.ok("daemon", "start")
    assert lab.wait(2) == 0
    assert lab.log(2) == "newer\n"
    assert lab.submit("--hold", "true") == 3
