"""`stoker clean`: removal, confirmation and freed disk space."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from stoker.client.removal import Removal
from stoker.engine.store.database import FILE_NAME, open_database
from tests.cli.helpers import Terminal, as_json, refused
from tests.helpers import Gate
from tests.lab import Lab


def test_clean_removes_only_selected_jobs(lab: Lab) -> None:
    lab.ok("submit", "-f", "-", input="true\nfalse\n")
    lab.wait()
    lab.submit("--hold", "true")
    assert lab.ok("clean", "--older", "7") == "0 jobs removed\n"
    plan = "1 finished job with its logs, none removed (--dry-run)\n"
    assert lab.ok("clean", "--state", "done", "--dry-run") == plan
    assert lab.ok("clean", "--state", "done").startswith("1 job removed")
    refused(lab.run("clean", "--state", "held"), 2, "`held` is not a final state",
            "final states: done, failed, cancelled, lost")  # fmt: skip
    refused(lab.run("clean", "2"), 2, "`stoker clean` takes no arguments, but got `2`",
            "see `stoker clean --help`")  # fmt: skip
    assert lab.states() == {2: "failed", 3: "held"}
    planned = as_json(lab.ok("clean", "--older", "0s", "--json", "--dry-run"))
    assert planned == {"schema": 2, "jobs": [2], "removed": [], "kept": [], "bytes": 0}
    assert as_json(lab.ok("clean", "--older", "0s", "--json"))["removed"] == [2]
    assert lab.states() == {3: "held"}


def test_clean_and_rm_of_a_state_keep_jobs_with_a_star_or_a_note(lab: Lab) -> None:
    lab.ok("submit", "-f", "-", input="true\n" * 4)
    lab.ok("sweep", "-n", "s", "true {x}", "x=1")
    lab.wait()
    lab.wait(1, 2, 3, 4)
    lab.ok("star", "1")
    lab.ok("note", "2", "the good one")
    lab.ok("star", "--sweep", "s")
    said = "kept 3 jobs with a star or a note; stoker rm ID... removes them\n"
    for words in (("rm", "all"), ("rm", "done,3"), ("clean", "-y")):
        done = lab.run(*words, "--dry-run")
        assert (done.stdout, done.stderr) == (
            "2 finished jobs with their logs, none removed (--dry-run)\n", said,
        )  # fmt: skip
    assert as_json(lab.ok("clean", "--json", "--dry-run"))["kept"] == [1, 2, 5]
    done = lab.run("clean", "-y")
    assert (done.stdout.startswith("2 jobs removed"), done.stderr) == (True, said)
    assert lab.ok("rm", "1", "done").startswith("1 job removed")
    assert set(lab.states()) == {2, 5}
    lab.ok("star", "5")
    refused(lab.run("sweep", "rm", "s", "--jobs"), 1, "1 job of `s` has a star or a note: 5",
            "to keep the jobs: stoker sweep rm s; else remove stars and notes first")  # fmt: skip
    lab.ok("sweep", "rm", "s")
    assert set(lab.states()) == {2, 5}


def test_dry_run_of_clean_shows_bytes_and_jobs_whose_metrics_would_be_lost(lab: Lab) -> None:
    lab.wait(lab.submit("echo '{\"loss\": 1}' >> $STOKER_METRICS; echo out"))
    lab.wait(lab.submit("true"))
    said = lab.ok("clean", "--dry-run")
    assert re.fullmatch(
        r"2 finished jobs with their logs \(\d.* KiB\) and the metrics of 1 of them, none removed"
        r" \(--dry-run\)\n", said,
    )  # fmt: skip
    assert as_json(lab.ok("rm", "1", "--dry-run", "--json"))["bytes"] >= 1024


def test_jobs_whose_files_cannot_be_listed_are_kept(lab: Lab) -> None:
    lab.wait(lab.submit("echo out"))
    folder = lab.state_dir / "jobs" / "0"
    folder.rename(folder.with_name("elsewhere"))
    folder.touch()  # like a folder on a file server that is gone, but also for root
    for words in (("clean", "-y"), ("clean", "--dry-run"), ("rm", "1")):
        said = f"cannot list the files of jobs in `{folder}`: Not a directory"
        refused(lab.run(*words), 69, said, "their jobs are kept")
    folder.unlink()
    folder.with_name("elsewhere").rename(folder)
    assert lab.ok("clean", "-y").startswith("1 job removed")


def test_clean_says_that_curves_of_trials_are_removed(lab: Lab) -> None:
    lab.ok(
        "sweep", "-n", "s", "echo stoker: loss={x} step=0; echo stoker: loss={x} step=1", "x=1,2"
    )
    lab.submit("echo out")
    lab.wait()
    lab.wait(1, 2, 3)
    said = lab.ok("clean", "--dry-run")
    assert "3 finished jobs with their logs" in said
    assert ", with the curves of 2 trials (results stay), none removed" in said
    lab.ok("clean", "-y")
    assert [row["loss"] for row in as_json(lab.ok("results", "s", "--json"))["rows"]] == [1, 2]


def test_clean_removes_foreground_runs_only_with_runs(lab: Lab) -> None:
    (lab.folder / "jobs.txt").write_text("echo once >> ran\n")
    lab.ok("run", "-q", "jobs.txt")
    lab.ok("clean")
    lab.ok("run", "-q", "--resume", "jobs.txt")
    assert (lab.folder / "ran").read_text() == "once\n"
    assert lab.ok("clean", "--runs") == "1 foreground run removed\n"
    lab.ok("run", "-q", "--resume", "jobs.txt")
    assert (lab.folder / "ran").read_text() == "once\nonce\n"


def test_clean_asks_for_confirmation_on_a_terminal(lab: Lab) -> None:
    job = lab.submit("true")
    lab.wait(job)
    for answer, code in (("n", 1), ("", 1), ("y", 0)):
        assert job in lab.states()
        terminal = Terminal(lab, "clean")
        terminal.read_until("remove 1 finished job with its logs? [y/N]")
        terminal.write(f"{answer}\n".encode())
        assert terminal.close() == code, terminal.text
    assert lab.states() == {}
    assert "1 job removed" in terminal.text


def test_clean_with_yes_does_not_ask_and_shows_progress_only_on_a_terminal(lab: Lab) -> None:
    lab.ok("submit", "-f", "-", input="true\n" * 3)
    lab.wait()
    terminal = Terminal(lab, "clean", "--yes")
    assert terminal.close() == 0
    assert "[y/N]" not in terminal.text
    assert "removed 3 of 3 jobs" in terminal.text
    lab.wait(lab.submit("true"))
    done = lab.run("clean")
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_clean_removes_all_files_of_a_job_and_no_others(lab: Lab) -> None:
    words = 'mkdir -p "$STOKER_OUTPUT_DIR"; echo x > "$STOKER_OUTPUT_DIR/x"; echo out'
    job = lab.submit(f'{words}; echo \'{{"loss": 1}}\' > "$STOKER_METRICS"')
    kept = lab.submit("--hold", "true")
    lab.wait(job)
    place = lab.state_dir / "jobs" / "0"
    neighbour = place / f"{job}0-1.log"  # as of job 10
    neighbour.write_text("of another job")
    assert len(list(place.iterdir())) == 4
    freed = as_json(lab.ok("clean", "--json"))["freed_bytes"]
    assert list(place.iterdir()) == [neighbour]
    assert freed >= 3 * 4096
    assert lab.states() == {kept: "held"}


def finished(lab: Lab, count: int) -> None:
    """Many finished jobs with logs, without running them."""
    lab.ok("submit", "-q", "--hold", "--file", "-", input="true\n" * count)
    db = sqlite3.connect(lab.state_dir / FILE_NAME)
    db.execute("UPDATE jobs SET state = 'done', ended_at = 1, attempts = 1, variables = ?",
               (b"A=" + b"x" * 500 + b"\0",))  # fmt: skip
    db.execute("INSERT INTO events (job, at, kind) SELECT id, 1, 'released' FROM jobs")
    db.commit()
    db.close()
    for job in range(1, count + 1):
        log = lab.state_dir / "jobs" / str(job // 1000) / f"{job}-1.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()


def pragma(lab: Lab, name: str) -> int:
    db = sqlite3.connect(lab.state_dir / FILE_NAME)
    try:
        return int(db.execute(f"PRAGMA {name}").fetchone()[0])
    finally:
        db.close()


def without_auto_vacuum(lab: Lab) -> None:
    """A database as older releases created it."""
    db = sqlite3.connect(lab.state_dir / FILE_NAME, isolation_level=None)
    db.execute("PRAGMA auto_vacuum=NONE")
    db.execute("VACUUM")
    db.close()


def database_bytes(folder: Path) -> int:
    files = (folder / FILE_NAME, folder / f"{FILE_NAME}-wal")
    return sum(path.stat().st_size for path in files if path.exists())


@pytest.mark.parametrize("age", ["new", "old"])
def test_clean_frees_disk_space_while_another_connection_is_open(lab: Lab, age: str) -> None:
    finished(lab, 3000)
    if age == "old":
        without_auto_vacuum(lab)
    other = sqlite3.connect(lab.state_dir / FILE_NAME)
    other.execute("SELECT count(*) FROM jobs").fetchone()
    before = database_bytes(lab.state_dir)
    report = as_json(lab.ok("clean", "--json"))
    assert len(report["removed"]) == 3000
    after = database_bytes(lab.state_dir)
    other.close()
    assert before > 2_000_000 and 10 * after < before
    assert report["freed_bytes"] == before - after
    assert pragma(lab, "auto_vacuum") == 2
    assert lab.submit("--hold", "true") == 3001


def test_old_database_is_not_copied_while_a_job_runs(lab: Lab) -> None:
    finished(lab, 3000)
    without_auto_vacuum(lab)
    gate = Gate(lab.folder)
    job = lab.submit(gate.wait)
    lab.wait_until(lambda: lab.state(job) == "running")
    done = lab.run("clean")
    assert done.stderr == "the database file was not made smaller: jobs are running\n"
    assert (lab.states(), pragma(lab, "auto_vacuum")) == ({job: "running"}, 0)
    gate.open()
    lab.wait(job)
    lab.ok("clean")
    assert pragma(lab, "auto_vacuum") == 2


def test_interrupted_clean_leaves_no_file_without_a_job(lab: Lab) -> None:
    finished(lab, 2500)
    db = open_database(str(lab.state_dir))

    def interrupt(removed: int) -> None:
        raise KeyboardInterrupt

    removal = Removal(db, interrupt)
    with pytest.raises(KeyboardInterrupt):
        removal.remove(list(range(1, 2501)))
    db.close()
    assert removal.jobs == list(range(1, 1001))
    logs = {int(path.name.partition("-")[0]) for path in lab.state_dir.glob("jobs/*/*.log")}
    assert logs == set(lab.states()) == set(range(1001, 2501))
    lab.ok("clean")
    assert lab.states() == {}
    assert list(lab.state_dir.glob("jobs/*/*.log")) == []
