"""Claims, ends and dependencies, in a real SQLite file."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.boot import boot_id
from stoker.engine.job_settings import DEFAULT_SETTINGS
from stoker.engine.model import Dependency, Outcome
from stoker.engine.outcome.retry import Verdict
from stoker.engine.store import attempts, changes, job_queries, ready_jobs
from stoker.engine.store.database import Database
from tests.engine.store.builders import a_spec, a_store, add

DONE = Verdict("succeed", "exit", 0, None)
FAILED = Verdict("fail", "exit", 3, None)


@pytest.fixture
def db(tmp_path: Path) -> Database:
    return a_store(tmp_path)


def _claim(attempt: int, job: int, number: int = 1) -> attempts.Claim:
    return attempts.Claim(attempt, job, number, (0,), None, 1000.0, boot_id())


def _finish(db: Database, job: int, attempt: int, verdict: Verdict, now: float = 1001.0) -> bool:
    judged = attempts.load_job_to_judge(db, attempt) or attempts.JobToJudge(
        job=job, attempts=1, settings=DEFAULT_SETTINGS, stop_requested=False, has_dependents=True,
        request_group=1, claim=None, profile=0, devices=(), started_at=None, stdout=None,
        stderr=None,
    )  # fmt: skip
    return attempts.finish(db, judged, Outcome(attempt, 0, now), verdict, now, 1000.5)


def test_second_claim_of_the_same_job_is_refused(db: Database) -> None:
    [job] = add(db, a_spec())
    assert attempts.claim(db, _claim(1, job))
    assert not attempts.claim(db, _claim(2, job))


@pytest.mark.parametrize(
    "change", [changes.hold, lambda db, ids, now: changes.cancel(db, ids, now)]
)
def test_held_or_cancelled_job_cannot_be_claimed(db: Database, change) -> None:  # type: ignore[no-untyped-def]
    [job] = add(db, a_spec())
    change(db, [job], 1001.0)
    assert not attempts.claim(db, _claim(1, job))


def test_final_state_is_never_changed_by_a_late_end(db: Database) -> None:
    [job] = add(db, a_spec())
    attempts.claim(db, _claim(1, job))
    _finish(db, job, 1, DONE)
    _finish(db, job, 1, FAILED)
    assert job_queries.job(db, job).state == "done"


def test_end_of_an_older_attempt_does_not_touch_the_newer_one(db: Database) -> None:
    [job] = add(db, a_spec(retries=1))
    attempts.claim(db, _claim(1, job))
    _finish(db, job, 1, Verdict("return", "exit", 3, None, delay=5.0))
    ready_jobs.release_due(db, 2000.0)
    attempts.claim(db, _claim(2, job, 2))
    _finish(db, job, 1, FAILED)
    assert job_queries.job(db, job).state == "starting"


def test_retry_waits_for_its_delay(db: Database) -> None:
    [job] = add(db, a_spec(retries=1))
    attempts.claim(db, _claim(1, job))
    _finish(db, job, 1, Verdict("return", "exit", 3, None, delay=5.0), now=1001.0)
    assert ready_jobs.next_due(db) == 1006.0
    assert ready_jobs.release_due(db, 1005.9) == 0
    assert ready_jobs.release_due(db, 1006.0) == 1


def test_ready_jobs_come_by_priority_then_id_and_groups_are_found_without_a_scan(
    db: Database,
) -> None:
    ids = add(db, a_spec(gpus=1), a_spec(gpus=1, priority=5), a_spec(gpus=4), a_spec(gpus=1))
    narrow, wide = (ready_jobs.load_group(db, id) for id in ready_jobs.ready_groups(db))
    assert (narrow.request.gpus, wide.request.gpus) == (1, 4)
    assert [job.id for job in ready_jobs.first(db, narrow, 10)] == [
        ids[1],
        ids[0],
        ids[3],
    ]


def test_dependents_become_ready_or_are_cancelled(db: Database) -> None:
    [first] = add(db, a_spec())
    after = [Dependency(first, condition) for condition in ("ok", "any", "notok")]
    ok, either, notok = add(db, *(a_spec(after=(dependency,)) for dependency in after))
    [cascade] = add(db, a_spec(after=(Dependency(ok),)))
    [group] = [ready_jobs.load_group(db, id) for id in ready_jobs.ready_groups(db)]
    assert len(ready_jobs.first(db, group, 10)) == 1
    attempts.claim(db, _claim(1, first))
    assert _finish(db, first, 1, FAILED)
    assert job_queries.job(db, ok).cause == "dependency" == job_queries.job(db, cascade).cause
    assert {job.id for job in ready_jobs.first(db, group, 10)} == {either, notok}


def test_undone_start_leaves_no_attempt(db: Database) -> None:
    [job] = add(db, a_spec())
    attempts.claim(db, _claim(1, job))
    attempts.unclaim(db, 1, 1002.0, "no room")
    row = job_queries.job(db, job)
    assert (row.state, row.attempts, row.attempt) == ("queued", 0, None)
    assert [kind for _, kind, _ in job_queries.events(db, job)] == ["start_undone"]


def test_backoffs_follow_a_clock_change_and_begin_times_do_not(db: Database) -> None:
    """Row 33 of the fault matrix."""
    begin, retry = add(db, a_spec(begin_at=5000.0), a_spec(retries=1))
    attempts.claim(db, _claim(1, retry))
    _finish(db, retry, 1, Verdict("return", "exit", 3, None, delay=5.0), now=1001.0)
    ready_jobs.shift_backoffs(db, 86400.0)
    assert job_queries.job(db, begin).eligible_at == 5000.0
    assert job_queries.job(db, retry).eligible_at == 1006.0 + 86400.0
