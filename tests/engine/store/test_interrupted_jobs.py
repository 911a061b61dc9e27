"""Queries after a restart of the host: no job of an earlier boot counts as running."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.engine.store import attempts, history, job_queries, waited_jobs
from stoker.engine.store.database import Database
from stoker.engine.store.interrupted_jobs import interrupted
from stoker.engine.store.job_table import Filters, JobTable
from stoker.states import ACTIVE, FINAL
from stoker.text.selectors import parse_selector
from tests.engine.store.builders import a_spec, a_store, add


@pytest.fixture
def db(tmp_path: Path) -> Database:
    return a_store(tmp_path)


def start(db: Database, attempt: int, job: int, boot: str) -> None:
    assert attempts.claim(db, attempts.Claim(attempt, job, 1, (0,), None, 1000.0, boot))
    attempts.record_start(db, attempt, 4711, 1000.0, 1.0)


def test_queries_show_what_the_daemon_will_record(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_BOOT_ID", "new")
    lost, again, current, waiting = add(db, a_spec(), a_spec(restartable=True), a_spec(), a_spec())
    for attempt, job, boot in ((1, lost, "old"), (2, again, "old"), (3, current, "new")):
        start(db, attempt, job, boot)
    assert interrupted(db) == {lost: ("running", "lost"), again: ("running", "queued")}
    counts = {"lost": 1, "queued": 2, "running": 1}
    assert job_queries.counts(db) == job_queries.counts_up_to(db, 100) == counts
    assert job_queries.counts_of(db, [lost, current]) == {"lost": 1, "running": 1}
    assert [row.id for row in job_queries.jobs_in_states(db, ACTIVE, 9)] == [current]
    assert [row.id for row in job_queries.jobs_in_states(db, FINAL, 9)] == [lost]
    assert [row.id for row in job_queries.jobs_in_states(db, ("queued",), 9)] == [again, waiting]
    assert JobTable(db, Filters(states=("queued",))).ids(limit=9) == [waiting, again]
    assert JobTable(db, Filters(states=FINAL)).ids(limit=9) == [lost]
    assert job_queries.select(db, parse_selector("running")) == [current]
    assert job_queries.select(db, parse_selector("queued")) == [again, waiting]
    assert job_queries.unfinished(db, [lost, again, current], 9) == [again, current]
    assert job_queries.ended_among(db, [lost, again]) == [(lost, "lost")]
    assert waited_jobs.active_jobs(db, [lost, again, current, waiting], 9) == [current]
    assert [one.job for one in attempts.open_attempts(db, of_this_boot=True)] == [current]
    assert len(attempts.open_attempts(db)) == 3
    assert history.recently_ended(db, 9) == [lost]
    assert history.unready(db, 9) == [again]
    row = job_queries.job(db, lost)
    assert (row.state, row.is_interrupted, row.detail) == ("lost", True, "the host was restarted")
