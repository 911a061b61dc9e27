"""When a submitted job starts, and what happens when it fails."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.helpers import refused
from tests.helpers import Gate
from tests.lab import Lab


@pytest.fixture
def narrow(new_lab: Callable[..., Lab]) -> Lab:
    """A host with one GPU and no delay between retries."""
    return new_lab(devices=1, STOKER_RETRY_DELAY="0.01")


def order_of(lab: Lab) -> list[str]:
    return (lab.folder / "order").read_text().split()


def test_jobs_start_by_priority_then_in_order_of_submission(narrow: Lab) -> None:
    gate = Gate(narrow.folder)
    narrow.submit(gate.wait)
    gate.wait_for()
    for name, priority in [("low", "-1"), ("first", "0"), ("second", "0"), ("high", "5")]:
        narrow.submit("-p", priority, f"echo {name} >> order")
    gate.open()
    assert narrow.wait() == 0
    assert order_of(narrow) == ["high", "first", "second", "low"]


def test_group_that_uses_fewest_gpus_goes_first_whatever_the_tags(
    new_lab: Callable[..., Lab],
) -> None:
    narrow = new_lab(devices=2)
    gate, other = Gate(narrow.folder), Gate(narrow.folder, "other")
    narrow.submit("--group", "a", gate.wait)
    narrow.submit(other.wait)
    gate.wait_for()
    other.wait_for()
    for group, tag, name in [("a", "x", "a1"), ("a", "y", "a2"), ("b", "x", "b1"), ("", "z", "c1")]:
        words = ("--group", group) if group else ()
        narrow.submit("-t", "1h", *words, "-T", tag, f"echo {name} >> order")
    assert narrow.job(3)["group"] == "a"
    assert narrow.job(6)["group"] is None
    assert "group       a\n" in narrow.ok("show", "3")
    other.open()  # group a keeps using the other GPU
    assert narrow.wait(3, 4, 5, 6) == 0
    gate.open()
    order = order_of(narrow)
    assert set(order[:2]) == {"b1", "c1"}
    assert order[2:] == ["a1", "a2"]


def test_empty_group_is_refused(lab: Lab) -> None:
    refused(lab.run("submit", "--group", "", "true"), 2, "`--group` must not be empty")


def test_job_waits_for_another_to_succeed(lab: Lab) -> None:
    gate = Gate(lab.folder)
    first = lab.submit(f"{gate.wait}; echo first >> order")
    second = lab.submit("--after", str(first), "echo second >> order")
    assert lab.ok("why", str(second)).startswith(f"job {second} waits: job {first} must succeed")
    gate.open()
    assert lab.wait(second) == 0
    assert order_of(lab) == ["first", "second"]


@pytest.mark.parametrize(
    ("command", "condition", "state"),
    [
        ("true", "ok", "done"),
        ("true", "any", "done"),
        ("true", "notok", "cancelled"),
        ("false", "ok", "cancelled"),
        ("false", "any", "done"),
        ("false", "notok", "done"),
    ],
)
def test_each_condition_accepts_the_right_results(
    lab: Lab, command: str, condition: str, state: str
) -> None:
    first = lab.submit("--hold", command)
    second = lab.submit("-d", f"{first}:{condition}", "true")
    lab.ok("release", str(first))
    lab.run("wait", "-q", str(first), str(second))
    assert lab.state(second) == state
    assert lab.job(second)["cause"] == ("dependency" if state == "cancelled" else "exit")


def test_failed_dependency_cancels_the_whole_chain(lab: Lab) -> None:
    first = lab.submit("--hold", "false")
    second = lab.submit("--after", str(first), "true")
    third = lab.submit("--after", str(second), "true")
    cleanup = lab.submit("--after", f"{third}:any", "true")
    lab.ok("release", str(first))
    assert lab.wait(cleanup) == 0
    assert [lab.job(job)["cause"] for job in (second, third)] == ["dependency"] * 2
    assert f"[job {first} failed] true" in lab.ok("ls", str(second))
    assert f"[job {second} was cancelled] true" in lab.ok("ls", str(third))


def test_job_after_a_failure_is_cancelled_when_the_other_succeeds(lab: Lab) -> None:
    first = lab.submit("--hold", "true")
    second = lab.submit("--after", f"{first}:notok", "true")
    lab.ok("release", str(first))
    assert lab.run("wait", str(second)).stderr.endswith(
        f"job {second} cancelled: job {first} succeeded\n"
    )
    assert f"[job {first} succeeded] true" in lab.ok("ls", str(second))
    assert f"state       cancelled: job {first} succeeded\n" in lab.ok("show", str(second))
    lab.ok("rm", str(first))
    assert f"[job {first} was removed] true" in lab.ok("ls", str(second))


def test_cancelling_a_waiting_job_cancels_its_dependents(lab: Lab) -> None:
    first = lab.submit("--hold", "true")
    second = lab.submit("--after", str(first), "true")
    lab.ok("cancel", str(first))
    assert (lab.job(first)["cause"], lab.job(second)["cause"]) == ("user", "dependency")


def test_job_after_several_waits_for_all_of_them(lab: Lab) -> None:
    first, second = lab.submit("--hold", "true"), lab.submit("--hold", "true")
    last = lab.submit("--after", f"{first},{second}:any", "true")
    lab.ok("release", str(first))
    assert lab.wait(first) == 0
    assert lab.state(last) == "queued"
    lab.ok("release", str(second))
    assert lab.wait(last) == 0


def test_dependency_on_a_succeeded_job_is_met(lab: Lab) -> None:
    first = lab.submit("true")
    lab.wait(first)
    second = lab.submit("--after", str(first), "true")
    assert lab.wait(second) == 0
    assert lab.job(second)["after"] == [{"job": first, "condition": "ok", "met": True}]


def test_dependency_on_a_failed_job_is_refused(lab: Lab) -> None:
    first = lab.submit("false")
    lab.wait(first)
    refused(
        lab.run("submit", "--after", str(first), "true"),
        1,
        f"job {first} has failed, so a job with --after {first}:ok would never start",
        f"use --after {first}:any, or rerun job {first} first",
    )
    assert list(lab.states()) == [first]


def test_job_over_its_time_limit_is_stopped(lab: Lab) -> None:
    job = lab.submit("-t", "0.1s", "--grace", "5s", "sleep 600")
    assert lab.wait(job) == 128 + 15
    assert (lab.state(job), lab.job(job)["cause"]) == ("failed", "time_limit")
    assert "[time limit] sleep 600" in lab.ok("ls")
    assert lab.processes() == []


def test_job_that_ignores_sigterm_is_killed_after_its_grace_period(lab: Lab) -> None:
    job = lab.submit("-t", "0.1s", "--grace", "0.1s", "trap '' TERM; while :; do sleep 0.05; done")
    assert lab.wait(job) == 128 + 9
    assert lab.processes() == []


def test_time_limit_of_zero_means_no_limit(lab: Lab) -> None:
    job = lab.submit("-t", "0", "true")
    assert lab.wait(job) == 0
    assert lab.job(job)["time_limit"] is None


def test_failing_job_is_retried(narrow: Lab) -> None:
    text = "echo try $STOKER_ATTEMPT; [ $STOKER_ATTEMPT = 3 ]"
    job = narrow.submit("--retries", "5", text)
    assert narrow.wait(job) == 0
    assert narrow.job(job)["attempts"] == 3
    history = narrow.job(job)["history"]
    assert [(attempt["number"], attempt["status"]) for attempt in history] == [
        (1, 256),
        (2, 256),
        (3, 0),
    ]
    assert narrow.log(job) == "try 3\n"
    assert narrow.ok("log", str(job), "--attempt", "1") == "try 1\n"


def test_job_is_retried_at_most_retries_times(narrow: Lab) -> None:
    job = narrow.submit("-r", "2", "exit 7")
    assert narrow.wait(job) == 7
    assert (narrow.job(job)["attempts"], narrow.state(job)) == (3, "failed")


def test_retry_appends_to_the_output_file_of_the_user(narrow: Lab) -> None:
    (narrow.folder / "out").write_text("old\n")
    job = narrow.submit("-r", "2", "-o", "out", "echo $STOKER_ATTEMPT; [ $STOKER_ATTEMPT = 3 ]")
    assert narrow.wait(job) == 0
    assert narrow.log(job) == "1\n2\n3\n"


def test_job_waits_between_retries(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1, STOKER_RETRY_DELAY="1h")
    job = lab.submit("-r", "1", "false")
    lab.wait_until(lambda: lab.job(job)["attempts"] == 1 and lab.state(job) == "queued")
    assert lab.ok("why", str(job)).startswith(f"job {job} waits: attempt 2 is due at 2")


def test_restartable_is_stored(lab: Lab) -> None:
    job = lab.submit("--hold", "--restartable", "true")
    assert lab.job(job)["restartable"] is True


def test_job_does_not_start_before_its_begin_time(lab: Lab) -> None:
    later = lab.submit("--begin", "+2h", "true")
    past = lab.submit("--begin", "2020-01-01T00:00", "true")
    assert lab.wait(past) == 0
    assert lab.state(later) == "queued"
    assert lab.ok("why", str(later)).startswith(f"job {later} waits: it may not start before 2")
    assert "not before  2" in lab.ok("show", str(later))


def test_job_starts_at_its_begin_time(lab: Lab) -> None:
    job = lab.submit("--begin", "now+0.2s", "true")
    assert lab.wait(job) == 0


def test_request_with_the_same_key_is_queued_once(lab: Lab) -> None:
    first = lab.submit("--dedupe", "abc", "echo one")
    assert lab.submit("--dedupe", "abc", "echo two") == first
    again = lab.ok("submit", "--dedupe", "abc", "echo three")
    assert again == f"job {first} already has this key\n"
    assert lab.submit("--dedupe", "other", "echo one") != first
    assert lab.job(first)["dedupe"] == "abc"


def test_job_file_with_a_key_is_queued_once(lab: Lab) -> None:
    (lab.folder / "jobs").write_text("true\ntrue\n")
    words = ("submit", "--hold", "--dedupe", "night", "--file", "jobs", "--json")
    assert json.loads(lab.ok(*words))["jobs"] == [1, 2]
    assert json.loads(lab.ok(*words))["jobs"] == [1, 2]
    (lab.folder / "jobs").write_text("true\ntrue\nthe third is new\n")
    assert sorted(json.loads(lab.ok(*words))["jobs"]) == [1, 2, 3]
