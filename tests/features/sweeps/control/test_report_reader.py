"""The process that reads the reports of trials when they end."""

from __future__ import annotations

import os
from contextlib import closing

from stoker.engine.store.database import Database, open_database
from stoker.features.results.reports.reader import Inbox, store_reports
from stoker.features.results.reports.reports import JobFiles, KnownReports, sweep_reports
from stoker.features.sweeps import store as sweeps
from tests.helpers import Gate
from tests.lab import HANG_SECONDS, Lab

TRIAL = "echo stoker: loss={x} acc=0.{x}"


def stored(lab: Lab, name: str = "mine") -> list[str | None]:
    """What is stored of the reports of each trial."""
    with closing(open_database(str(lab.state_dir))) as db:
        return [trial.reports for trial in sweeps.trials(db, sweeps.get(db, name).id)]


def test_reports_of_trials_are_stored_when_they_end(lab: Lab) -> None:
    lab.ok("sweep", "--name", "mine", TRIAL, "x=1,2,3,4,5")
    lab.wait()
    lab.wait_until(lambda: None not in stored(lab))
    by_reader = stored(lab)
    with closing(open_database(str(lab.state_dir))) as db:
        db.execute("UPDATE trials SET reports = NULL")
        sweep_reports(db, JobFiles(str(lab.state_dir)), sweeps.get(db, "mine"))
    assert stored(lab) == by_reader  # as the first table would have stored them


def test_metrics_of_trials_can_be_filtered_without_reading_files(lab: Lab) -> None:
    lab.ok("sweep", "--name", "mine", TRIAL, "x=1,2,3")
    lab.wait()

    def metrics(db: Database) -> list[tuple[object, ...]]:
        return db.execute("SELECT job, metrics FROM job_metrics ORDER BY job").fetchall()

    with closing(open_database(str(lab.state_dir))) as db:
        lab.wait_until(lambda: len(metrics(db)) == 3)
        assert metrics(db)[0] == (1, '{"loss": 1, "acc": 0.1}')


def test_daemon_starts_a_new_report_reader_after_the_first_was_killed(lab: Lab) -> None:
    lab.ok("sweep", "--name", "mine", TRIAL, "x=1,2")
    lab.wait()
    lab.wait_until(lambda: None not in stored(lab))
    lab.kill_helper("report_reader")
    lab.ok("sweep", "--name", "other", TRIAL, "x=1,2")
    lab.wait()
    lab.wait_until(lambda: None not in stored(lab, "other"))


def test_reports_of_running_jobs_removed_jobs_and_other_jobs_are_not_stored(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.ok("sweep", "--name", "mine", f"echo stoker: loss={{x}}; {gate.wait}", "x=1")
    gate.wait_for()
    other = lab.submit("true")
    lab.wait(other)
    with closing(open_database(str(lab.state_dir))) as db:
        store_reports(db, JobFiles(str(lab.state_dir)), [1, other, 999])
        assert db.value("SELECT count(*) FROM job_metrics") == 0
    assert stored(lab) == [None]
    gate.open()
    lab.wait()


def test_reports_that_are_known_are_read_again_when_the_stored_ones_change(lab: Lab) -> None:
    lab.ok("sweep", "--name", "mine", TRIAL, "x=1,2")
    lab.wait()
    files = JobFiles(str(lab.state_dir))
    with closing(open_database(str(lab.state_dir))) as db:
        row = sweeps.get(db, "mine")
        known: KnownReports = {}
        first = sweep_reports(db, files, row, known)
        assert sweep_reports(db, files, row, known) == first  # the first call stored them
        assert sorted(known) == [1, 2]
        assert sweep_reports(db, files, row, known) == first
        db.execute("UPDATE trials SET reports = (SELECT reports FROM trials WHERE number = 2)")
        values = [one.row.metrics["loss"] for one in sweep_reports(db, files, row, known)]
        assert values == [2, 2]


def test_inbox_returns_each_id_once_and_ignores_other_words() -> None:
    reader, writer = os.pipe()
    inbox = Inbox(reader)
    os.write(writer, b"3 4\n\n5 4\n7")
    assert inbox.wait(0)
    assert inbox.take(2) == [3, 4]
    assert inbox.take(2) == [5]
    assert not inbox.wait(0)  # the last line is not complete
    os.write(writer, b"1 x -2\n")
    os.close(writer)
    assert inbox.wait(HANG_SECONDS)
    assert (inbox.take(9), inbox.is_closed) == ([71], True)
    os.close(reader)
