"""Commands that change jobs: cancel, hold, release, rerun, priority, tag, rm, clean."""

from __future__ import annotations

import os

import pytest

from tests.cli.helpers import as_json, refused
from tests.helpers import Gate
from tests.lab import Lab

WHICH = ("no jobs given", "`stoker help selectors` explains how to select jobs")


@pytest.mark.parametrize("verb", ["cancel", "hold", "release", "rerun", "rm"])
def test_command_without_jobs_is_refused(lab: Lab, verb: str) -> None:
    refused(lab.run(verb), 2, *WHICH)
    refused(lab.run(verb, "7"), 1, "there is no job 7", "`stoker ls` shows the jobs")


def test_cancel_ends_a_waiting_job_immediately(lab: Lab) -> None:
    job = lab.submit("--hold", "true")
    assert lab.ok("cancel", str(job)) == "1 job cancelled\n"
    assert (lab.state(job), lab.job(job)["cause"]) == ("cancelled", "user")
    refused(lab.run("cancel", str(job)), 1, f"job {job} has already finished: cancelled")
    assert lab.ok("cancel", "all") == "0 jobs cancelled\n"


def test_cancel_sends_sigterm_to_a_running_job(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit(f"trap 'echo saved; exit 4' TERM; {gate.wait}")
    gate.wait_for()
    assert lab.ok("cancel", str(job)) == "1 running job stopping\n"
    assert lab.wait(job) == 4
    facts = lab.job(job)
    assert (facts["state"], facts["cause"], facts["exit_code"]) == ("cancelled", "user", 4)
    assert lab.log(job).endswith("saved\n")
    assert "[by the user]" in lab.ok("ls")


def test_cancel_kills_all_processes_after_the_grace_period(lab: Lab) -> None:
    gate = Gate(lab.folder)
    stubborn = "trap '' TERM; (setsid sh -c \"trap '' TERM; sleep 600\" &); "
    job = lab.submit("--grace", "1h", stubborn + gate.wait)
    gate.wait_for()
    lab.ok("cancel", "--grace", "0.05", str(job))
    assert lab.wait(job) == 128 + 9
    assert lab.processes() == []


def test_cancel_now_sends_sigkill_immediately(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit("--grace", "1h", f"trap 'echo saved; exit 0' TERM; {gate.wait}")
    gate.wait_for()
    lab.ok("kill", "--now", str(job))
    assert lab.run("wait", "-q", str(job)).returncode != 0
    assert lab.state(job) == "cancelled"


def test_second_cancel_shortens_the_grace_period(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit("--grace", "1h", f"trap '' TERM; {gate.wait}")
    gate.wait_for()
    lab.ok("cancel", str(job))
    lab.wait_until(lambda: lab.state(job) == "stopping")
    assert lab.job(job)["stop_requested"] is True
    lab.ok("cancel", "--now", str(job))
    assert lab.wait(job) == 128 + 9


def test_cancel_counts_waiting_and_running_jobs(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit("-G2", gate.wait)
    gate.wait_for()
    lab.ok("submit", "-f", "-", input="true\n" * 3)
    assert as_json(lab.ok("cancel", "--json", "all")) == {
        "schema": 2, "cancelled": 3, "stopping": 1,
    }  # fmt: skip
    assert lab.wait() == 1
    assert set(lab.states().values()) == {"cancelled"}


def test_held_job_starts_only_after_release(lab: Lab) -> None:
    lab.ok("daemon", "drain")
    lab.ok("submit", "-f", "-", input="true\n" * 3)
    assert lab.ok("hold", "1") == "1 job held; to let it start: stoker release 1\n"
    assert lab.ok("hold", "1-3") == "2 jobs held; to let them start: stoker release 1-3\n"
    assert lab.ok("hold", "1") == "0 jobs held\n"
    lab.ok("daemon", "resume")
    assert lab.ok("release", "2") == "1 job released\n"
    assert lab.wait(2) == 0
    assert lab.states() == {1: "held", 2: "done", 3: "held"}
    refused(lab.run("hold", "2"), 1, "job 2 is done; only a queued job can be held")
    refused(lab.run("release", "2"), 1, "job 2 is done; only a held job can be released")
    assert as_json(lab.ok("release", "all", "--json")) == {"schema": 2, "released": 2}
    assert lab.wait() == 0


def test_rerun_is_a_new_job_with_the_same_request(lab: Lab) -> None:
    (lab.folder / "here").mkdir()
    words = ("-C", "here", "-n", "n", "-T", "t", "-p", "2", "-t", "5m", "echo $A; pwd; exit 1")
    job = lab.submit(*words, A="kept")
    assert lab.wait(job) == 1
    assert lab.ok("rerun", str(job), A="other") == "job 1 resubmitted as job 2\n"
    assert lab.wait(2) == 1
    assert lab.log(2) == f"kept\n{lab.folder}/here\n"
    same = ("name", "tags", "priority", "time_limit", "argv", "cwd", "gpus", "shell")
    old, new = lab.job(1), lab.job(2)
    assert {key: old[key] for key in same} == {key: new[key] for key in same}
    assert (new["rerun_of"], old["state"], lab.ok("show", "2").split("rerun of")[1].split()[0]) == (
        1, "failed", "1",
    )  # fmt: skip


def test_rerun_failed_reruns_each_failed_job_once(lab: Lab) -> None:
    lab.ok("submit", "-f", "-", input="true\nexit 1\nexit 2\n")
    lab.wait()
    assert lab.ok("rerun", "--failed", "--hold") == "2 jobs resubmitted: 2 as 4, 3 as 5\n"
    assert lab.ok("rerun", "--failed") == "0 jobs resubmitted\n"
    assert lab.states() == {1: "done", 2: "failed", 3: "failed", 4: "held", 5: "held"}
    refused(lab.run("rerun", "4"), 1, "job 4 is held; only a finished job can be rerun")


def test_rerun_failed_can_be_restricted_to_jobs(lab: Lab) -> None:
    lab.ok("submit", "-f", "-", input="exit 1 #stoker -n a\nexit 2 #stoker -n b\n")
    lab.wait()
    assert as_json(lab.ok("rerun", "--failed", "b", "--json", "--hold"))["jobs"] == [3]
    assert lab.job(3)["rerun_of"] == 2


def test_priority_changes_only_waiting_jobs(lab: Lab) -> None:
    lab.ok("submit", "--hold", "-f", "-", input="true\n" * 3)
    assert lab.ok("priority", "10", "2") == "priority of 1 job set to 10\n"
    assert lab.ok("priority", "-5", "1,3") == "priority of 2 jobs set to -5\n"
    assert lab.ok("priority", "--", "-6", "1") == "priority of 1 job set to -6\n"
    assert [lab.job(job)["priority"] for job in (1, 2, 3)] == [-6, 10, -5]
    lab.ok("cancel", "1")
    refused(
        lab.run("priority", "1", "1"),
        1,
        "job 1 was cancelled; only a waiting job can change its priority",
    )
    refused(
        lab.run("priority"), 2, "no priority and no jobs given", "example: stoker priority 10 7"
    )
    refused(lab.run("priority", "high", "2"), 2, "`high` is not an integer")
    refused(lab.run("priority", "3"), 2, *WHICH)


def test_new_priority_changes_which_job_starts_first(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit("-G2", gate.wait)
    gate.wait_for()
    for name in ("a", "b", "c"):
        lab.submit("-G2", "-n", name, f"echo {name} >> order")
    lab.ok("priority", "1", "c")
    gate.open()
    assert lab.wait() == 0
    assert (lab.folder / "order").read_text().split() == ["c", "a", "b"]


def test_tags_can_be_added_and_removed(lab: Lab) -> None:
    lab.ok("submit", "--hold", "-T", "old", "-f", "-", input="true\n" * 2)
    assert lab.ok("tag", "1-2", "+new", "-old", "+old2") == "2 jobs tagged\n"
    assert lab.job(1)["tags"] == ["new", "old2"]
    assert lab.ok("tag", "2", "-new", "-hot") == "tags removed from 1 job\n"
    assert lab.job(2)["tags"] == ["old2"]
    refused(lab.run("tag", "1"), 2, "no tags given", "example: stoker tag 7 +baseline")
    hint = f"give jobs or the name of a sweep; {WHICH[1]}"
    refused(lab.run("tag", "+x"), 2, WHICH[0], hint)


def test_tag_without_a_plus_sign_gets_a_hint(lab: Lab) -> None:
    lab.submit("--hold", "true")
    refused(lab.run("tag", "1", "baseline"), 1, "there is no job or sweep `baseline`",
            "to add a tag: stoker tag 1 +baseline")  # fmt: skip
    refused(lab.run("tag", "2", "+baseline"), 1, "there is no job 2",
            "`stoker ls` shows the jobs")  # fmt: skip


def test_changed_tags_are_recorded_as_events(lab: Lab) -> None:
    lab.submit("--hold", "-T", "old", "true")
    lab.ok("tag", "1", "+new", "-old", "-absent")
    lab.ok("tag", "1", "+new")  # changes nothing
    (event,) = lab.job(1)["events"]
    assert (event["kind"], event["data"]) == ("tagged", "+new -old")
    assert "  tagged +new -old\n" in lab.ok("show", "1") + "\n"


def test_tag_says_what_was_added_and_removed(lab: Lab) -> None:
    lab.submit("--hold", "-T", "old", "true")
    assert lab.ok("tag", "1", "+new") == "1 job tagged\n"
    assert lab.ok("tag", "1", "-old") == "tag removed from 1 job\n"
    assert lab.ok("tag", "1", "-old,older") == "unchanged: 1 job had no such tags\n"


def test_comma_separates_two_tags(lab: Lab) -> None:
    lab.submit("--hold", "-T", "a,b", "--tag", "c", "true")
    assert lab.job(1)["tags"] == ["a", "b", "c"]
    lab.ok("tag", "1", "+d,e", "-a,b")
    assert lab.job(1)["tags"] == ["c", "d", "e"]
    refused(lab.run("tag", "1", "+"), 2, "a tag must not be empty")
    refused(lab.run("tag", "1", "+a,,b"), 2, "`a,,b` has an empty tag")


@pytest.mark.parametrize("verb", ["release", "rerun", "wait"])
def test_command_that_starts_the_daemon_prints_a_notice(lab: Lab, verb: str) -> None:
    lab.submit("--hold", "true")
    if verb == "rerun":
        lab.ok("cancel", "1")
    if verb == "wait":
        lab.ok("release", "1")
        lab.wait()
        lab.ok("daemon", "drain")
        lab.submit("true")
        lab.ok("daemon", "stop")
        verb_and_jobs = ["wait", "--timeout", "0s"]
    else:
        verb_and_jobs = [verb, "1"]
    assert lab.daemon_pid() is None
    started = "started the background daemon; stopping it does not stop your jobs\n"
    assert lab.run(*verb_and_jobs).stderr.startswith(started)
    assert started not in lab.run(*verb_and_jobs).stderr


def test_rm_removes_finished_jobs_and_their_logs(lab: Lab) -> None:
    lab.ok("submit", "-f", "-", input="echo a\necho b\n")
    lab.wait()
    held = lab.submit("--hold", "true")
    logs = [lab.ok("log", "--path", job).strip() for job in ("1", "2")]
    assert [os.path.exists(log) for log in logs] == [True, True]
    done = lab.run("rm", "1", str(held))
    assert (done.stdout, done.stderr) == (
        "1 job removed\n",
        "1 job not removed: only finished jobs can be removed\n",
    )
    assert [os.path.exists(log) for log in logs] == [False, True]
    assert lab.states() == {2: "done", held: "held"}
    assert as_json(lab.ok("rm", "2", "--json")) == {"schema": 2, "removed": [2]}
    assert lab.run("rm", str(held)).returncode == 1


def test_job_id_is_never_reused(lab: Lab) -> None:
    job = lab.submit("true")
    lab.wait(job)
    lab.ok("rm", str(job))
    assert lab.submit("--hold", "true") == job + 1
