"""Events that triggers record, and the messages that are made of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from stoker.engine.daemon.helper_process import DaemonParts, News
from stoker.engine.model import Outcome
from stoker.engine.outcome.retry import Verdict
from stoker.engine.store import attempts, changes, dependencies, device_settings
from stoker.engine.store.attempts import Claim
from stoker.engine.store.database import Database, open_database, open_temporary
from stoker.features.notify import store as notify_outbox
from stoker.features.notify.collect import Collector
from stoker.features.notify.notifier_process import NotifierProcess
from stoker.features.notify.notify_settings import NotifySettings
from stoker.features.sweeps import store as sweeps
from stoker.settings import Settings
from tests.engine.store.builders import a_spec, add

NOW = 10_000.0


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    db = open_database(str(tmp_path), durable=False)
    yield db
    db.close()


def start(db: Database, job: int, at: float = NOW - 60) -> int:
    """Start a queued job; returns its attempt."""
    attempt = attempts.next_attempt(db)
    claim = Claim(attempt, job, 1, (), None, at, "boot")
    with db.transaction():
        assert attempts.claim(db, claim)
        attempts.record_start(db, attempt, 1, at, at)
    return attempt


def end(db: Database, job: int, code: int = 0, *, cause: str = "exit", at: float = NOW) -> None:
    """Run a job that exits with `code`."""
    attempt = start(db, job, at - 60)
    finish(db, attempt, code, cause, at=at)


def finish(
    db: Database, attempt: int, code: int, cause: str, delay: float | None = None, at: float = NOW
) -> None:
    with db.transaction():
        judged = attempts.load_job_to_judge(db, attempt)
        assert judged is not None
        event = "fail" if code else "succeed"
        verdict = Verdict(event, cause, code, None, delay)
        attempts.finish(db, judged, Outcome(attempt, code << 8, at), verdict, at, None)


def collect(db: Database, now: float = NOW, **options: Any) -> list[tuple[str, str]]:
    """Make messages at once; returns the place and subject of the new ones."""
    known = {one.id for one in notify_outbox.newest(db, 1000)}
    notify = NotifySettings(**{"interval": 0.0, **options})
    with db.transaction():
        Collector(db, Settings("/nowhere", notify=notify)).collect(now)
    found = notify_outbox.newest(db, 1000)
    return [(one.place, one.content["subject"]) for one in found if one.id not in known]


def test_job_without_notifications_records_no_event(db: Database) -> None:
    (job,) = add(db, a_spec())
    end(db, job, 1)
    assert not notify_outbox.has_events(db)


def test_end_and_failure_are_announced_once_for_each_place(db: Database) -> None:
    notify = "end:a,failure:a,failure:b"
    done, failed = add(db, a_spec(name="x", notify=notify), a_spec(name="y", notify=notify))
    end(db, done)
    assert collect(db) == [("a", "x finished after 1m00s")]
    end(db, failed, 3)
    assert collect(db) == [
        ("a", "y failed after 1m00s: exit 3"),
        ("b", "y failed after 1m00s: exit 3"),
    ]
    assert not notify_outbox.has_events(db)


def test_attempt_that_is_retried_is_not_announced(db: Database) -> None:
    (job,) = add(db, a_spec(notify="all:a"))
    finish(db, start(db, job), 1, "exit", delay=1.0)
    assert not notify_outbox.has_events(db)


def test_every_way_to_end_is_recorded(db: Database) -> None:
    notify = "end:a"
    first, second, third = add(db, *(a_spec(name=n, notify=notify) for n in "xyz"))
    changes.cancel(db, [first], NOW)
    with db.transaction():
        dependencies.cancel_waiting(db, second, "dependency", NOW)
        db.execute("UPDATE jobs SET state = 'lost', ended_at = ? WHERE id = ?", (NOW, third))
    assert collect(db) == [("a", "3 jobs ended: 1 lost, 2 cancelled")]


def test_job_cancelled_by_a_failed_dependency_counts_as_a_failure(db: Database) -> None:
    cancelled, by_user = add(db, *(a_spec(name=n, notify="failure:a") for n in "xy"))
    with db.transaction():
        dependencies.cancel_waiting(db, cancelled, "dependency", NOW)
    changes.cancel(db, [by_user], NOW)
    assert collect(db) == [("a", "x was cancelled: a dependency was not met")]


def test_event_of_a_removed_job_is_still_announced(db: Database) -> None:
    (job,) = add(db, a_spec(notify="end:a"))
    end(db, job, 1)
    changes.remove(db, [job])
    assert collect(db) == [("a", f"job {job} failed")]


def test_first_failure_of_a_batch_is_announced_once(db: Database) -> None:
    jobs = add(db, *(a_spec(name=n, notify="first-failure:a") for n in "wxyz"))
    end(db, jobs[0])
    end(db, jobs[1], 1)
    end(db, jobs[2], 1, at=NOW - 5)  # it ended earlier, but was recorded later
    assert collect(db) == [
        ("a", f"first failure of the jobs from job {jobs[0]} on: x failed after 1m00s: exit 1")
    ]
    end(db, jobs[3], 1)
    assert collect(db) == []


def test_end_of_a_batch_is_announced_when_the_last_job_ended(db: Database) -> None:
    jobs = add(db, *(a_spec(notify="sweep-end:a") for _ in range(3)))
    end(db, jobs[2])
    end(db, jobs[0], 1)
    assert collect(db) == []
    end(db, jobs[1], at=NOW + 40)
    (found,) = collect(db)
    assert found[1].endswith(": 2 done, 1 failed")


def test_end_of_an_adaptive_sweep_is_announced_when_its_search_ended(db: Database) -> None:
    (context,) = add(db, a_spec())
    with db.transaction():
        sweep = sweeps.save(
            db, "otter", NOW,
            {"key": "k", "spec": "{}", "base": "{}", "context": context, "is_driven": 1},
        )  # fmt: skip
    (job,) = add(db, a_spec(sweep=sweep, notify="sweep-end:a"))
    with db.transaction():
        trial = sweeps.add_trials(db, sweep, [("i", '{"lr": [0.1, "0.1"]}')])
        sweeps.attach(db, sweep, [(trial, job)])
    end(db, job)
    assert collect(db) == []
    with db.transaction():
        sweeps.end_driving(db, sweep, "{}")
    (found,) = collect(db)
    assert found[0] == "a" and found[1].startswith("sweep otter finished after")
    assert found[1].endswith(": 1 done")


def test_stopped_sweep_is_announced_when_its_running_jobs_ended(db: Database) -> None:
    (context,) = add(db, a_spec())
    with db.transaction():
        columns = {"key": "k", "spec": "{}", "base": "{}", "context": context, "is_driven": 0}
        sweep = sweeps.save(db, "otter", NOW, columns)
    jobs = add(db, *(a_spec(sweep=sweep, notify="sweep-end:a") for _ in range(2)))
    with db.transaction():
        first = sweeps.add_trials(db, sweep, [("i", "{}"), ("j", "{}")])
        sweeps.attach(db, sweep, enumerate(jobs, first))
    attempt = start(db, jobs[0])
    with db.transaction():
        sweeps.stop(db, sweep, "by user", NOW)
    assert collect(db) == []
    finish(db, attempt, 0, "exit")
    (found,) = collect(db)
    assert found[1].startswith("sweep otter was stopped")
    assert found[1].endswith(": 1 done, 1 cancelled")


def test_time_limit_is_announced_once_for_each_attempt_before_it_is_reached(db: Database) -> None:
    specs = [
        a_spec(name=n, time_limit=t, notify="time-limit:a") for n, t in (("x", 600), ("y", 90))
    ]
    job, short = add(db, *specs)
    start(db, job, at=NOW)
    start(db, short, at=NOW)
    assert notify_outbox.next_due(db, NOW) == NOW + 540
    assert collect(db, NOW + 539) == []
    assert collect(db, NOW + 545) == [("a", "x reaches its time limit of 10m00s in 55s")]
    assert collect(db, NOW + 550) == []
    assert notify_outbox.next_due(db, NOW + 550) is None or not notify_outbox.has_events(db)


def test_lost_gpu_is_announced_even_if_the_job_is_retried(db: Database) -> None:
    (job,) = add(db, a_spec(name="x", notify="gpu-lost:a,failure:b"))
    finish(db, start(db, job), 1, "gpu_lost", delay=1.0)
    assert collect(db) == [("a", "x lost its GPU")]


def test_quarantined_gpu_is_announced_to_the_default_places(db: Database) -> None:
    cases: tuple[tuple[str, dict[str, Any], list[tuple[str, str]]], ...] = (
        ("GPU-1", {}, []),
        ("GPU-2", {"when": "gpu-lost", "where": ("a",)},
         [("a", "GPU GPU-2 is not used any more: Xid 79")]),
        ("GPU-3", {"when": "failure", "where": ("a",)}, []),
    )  # fmt: skip
    for uuid, options, expected in cases:
        with db.transaction():
            device_settings.quarantine(db, uuid, "Xid 79")
            device_settings.quarantine(db, uuid, "Xid 79 again")
        assert collect(db, **options) == expected


def test_events_are_grouped_and_limited_to_one_message_in_an_interval(db: Database) -> None:
    jobs = add(db, *(a_spec(notify="end:a") for _ in range(40)))
    for job in jobs[:37]:
        end(db, job, int(job in jobs[:2]))
    assert collect(db, NOW + 1, interval=30.0) == []
    assert collect(db, NOW + 2, interval=30.0) == [("a", "37 jobs ended: 35 done, 2 failed")]
    end(db, jobs[37], at=NOW + 10)
    end(db, jobs[38], at=NOW + 20)
    assert collect(db, NOW + 31, interval=30.0) == []
    assert collect(db, NOW + 32, interval=30.0) == [("a", "2 jobs ended: 2 done")]


def test_facts_of_a_message_follow_the_settings(db: Database) -> None:
    spec = a_spec("python t.py --token abc", notify="end:a")
    (job,) = add(db, spec)
    end(db, job)
    collect(db, link="http://gpu1:80")
    message = notify_outbox.newest(db, 1)[0].content
    assert message["subject"] == "python t.py --token *** finished after 1m00s"
    assert f"link: http://gpu1:80/#/jobs/{job}" in message["body"]
    (job,) = add(db, spec)
    end(db, job)
    assert collect(db, command=False) == [("a", f"job {job} finished after 1m00s")]
    assert "python" not in notify_outbox.newest(db, 1)[0].content["body"]


def test_messages_are_retried_with_backoff_and_given_up(db: Database) -> None:
    with db.transaction():
        number = notify_outbox.add_message(db, "a", {"subject": "s", "events": []}, NOW)
        notify_outbox.mark_failed(db, number, "HTTP 500", NOW, NOW + 10)
    (message,) = notify_outbox.waiting(db)
    assert (message.tries, message.error, message.due_at) == (1, "HTTP 500", NOW + 10)
    assert notify_outbox.next_due(db, NOW) == NOW + 10 and not message.is_due(NOW)
    set_back = NOW - 3600  # the wall clock
    assert notify_outbox.next_due(db, set_back) == set_back and message.is_due(set_back)
    with db.transaction():
        notify_outbox.mark_failed(db, number, "HTTP 404", NOW, None)
    assert notify_outbox.waiting(db) == []
    (message,) = notify_outbox.newest(db, 1)
    assert (message.state, message.ended_at, message.tries) == ("failed", NOW, 2)
    with db.transaction():
        assert notify_outbox.retry_failed(db, NOW + 99) == 1
    assert len(notify_outbox.waiting(db)) == 1


def test_old_messages_are_forgotten_but_never_those_to_send(db: Database) -> None:
    with db.transaction():
        for number in range(1, 1101):
            notify_outbox.add_message(db, "a", {}, NOW)
            if number > 5:
                notify_outbox.mark_sent(db, number, NOW)
        notify_outbox.forget_old(db, NOW)
    assert len(notify_outbox.waiting(db)) == 5
    assert len(notify_outbox.newest(db, 9999)) == 1005


@settings(max_examples=20, deadline=None)
@given(some.floats(1, 1e7))
def test_time_of_the_warning_is_the_same_in_sql(limit: float) -> None:
    db = open_temporary("/tmp")
    (job,) = add(db, a_spec(time_limit=limit, notify="time-limit:a"))
    start(db, job, at=NOW)
    seconds = min(max(limit / 10, 60.0), 1800.0)
    expected = None if limit < 120 else pytest.approx(NOW + limit - seconds)
    assert notify_outbox.next_due(db, NOW) == expected
    db.close()


def test_daemon_wakes_up_for_a_time_limit_and_for_retries(db: Database, tmp_path: Path) -> None:
    parts = SimpleNamespace(db=db, settings=Settings(str(tmp_path)))
    process = NotifierProcess(cast(DaemonParts, parts))
    assert process.tick(time.monotonic(), News(was_read=True)) is None
    assert process.next_deadline() is None
    (job,) = add(db, a_spec(time_limit=3600, notify="time-limit:a"))
    start(db, job, at=time.time())
    process.tick(time.monotonic(), News(has_events=True))
    soon = process.next_deadline()
    assert soon is not None and soon <= time.monotonic() + 10  # jobs that started are looked at
    process.tick(soon, News())
    deadline = process.next_deadline()
    assert deadline == pytest.approx(time.monotonic() + 3240, abs=60)
    with db.transaction():
        number = notify_outbox.add_message(db, "a", {}, time.time())
        notify_outbox.mark_failed(db, number, "HTTP 500", time.time(), time.time() + 500)
    process.tick(time.monotonic(), News(was_read=True))
    assert process.next_deadline() == pytest.approx(time.monotonic() + 500, abs=60)
    assert not process.is_running
