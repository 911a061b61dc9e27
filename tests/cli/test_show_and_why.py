"""`stoker show` and `stoker why`: one job in full, and what it waits for."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable

from stoker.supervisor.process_table import STOPPED, state_of
from tests.cli.helpers import Gate, as_json, refused, without_times
from tests.lab import Lab


def why(lab: Lab, *words: str) -> str:
    return without_times(lab.ok("why", *words)).rstrip("\n")


def test_show_tells_everything_about_an_ended_job(lab: Lab) -> None:
    first = lab.submit("true")
    lab.wait(first)
    job = lab.submit(
        "-n", "eval", "-T", "b", "-T", "a", "-p", "5", "-d", f"{first}:any", "-t", "2h", "-r", "1",
        "--restartable", "-e", "err", "echo", "hello world", STOKER_RETRY_DELAY="0",
    )  # fmt: skip
    assert lab.wait(job) == 0
    shown = without_times(lab.ok("show", str(job)))
    assert shown == (
        "job         2 (eval)\n"
        "state       done\n"
        "command     echo 'hello world'\n"
        f"folder      {lab.folder}\n"
        "gpus        1 (gpu 0)\n"
        "priority    5\n"
        "tags        a, b\n"
        "after       1:any (met)\n"
        "limit       2h00m\n"
        "retries     1\n"
        "restartable yes\n"
        "submitted   DATE\n"
        "started     DATE\n"
        "ended       DATE\n"
        "took        TIME\n"
        "used        TIME CPU\n"
        "learned     1 run took TIME\n"
        f"log         {lab.state_dir}/jobs/0/2-1.log\n"
        f"errors      {lab.folder}/err\n"
    )


def test_show_lists_attempts_and_what_people_did(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1, STOKER_RETRY_DELAY="0")
    job = lab.submit("-r", "1", "--hold", "kill -9 $$")
    lab.ok("priority", "3", str(job))
    lab.ok("release", str(job))
    assert lab.wait(job) == 128 + 9
    shown = without_times(lab.ok("show", str(job)))
    assert "state       failed: killed by SIGKILL\n" in shown
    assert shown.endswith(
        "attempt  started              took  gpu  end\n"
        "1        DATE  TIME 0    killed by SIGKILL\n"
        "2        DATE  TIME 0    killed by SIGKILL\n"
        "DATE  priority 3\n"
    )
    facts = lab.job(job)
    assert [event["kind"] for event in facts["events"]] == ["priority"]
    assert [attempt["cause"] for attempt in facts["history"]] == ["signal", "signal"]
    assert (facts["signal"], facts["exit_code"]) == (9, None)


def test_a_job_that_waits_to_be_tried_again_holds_no_gpu(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1, STOKER_RETRY_DELAY="1h")
    lab.submit("-r", "1", "exit 3")
    lab.wait_until(lambda: lab.job(1)["attempts"] == 1 and lab.state(1) == "queued")
    assert "\ngpus        1\n" in lab.ok("show", "1")
    assert lab.job(1)["devices"] == []
    assert lab.job(1)["history"][0]["devices"] == [0]
    row = lab.ok("ls").splitlines()[1].split(None, 5)
    assert row[:5] == ["1", "queued", "-", "(1)", "-"]
    assert row[5].startswith("[retry in 4m") and row[5].endswith("] exit 3")


def test_show_names_what_was_edited_as_people_know_it(lab: Lab) -> None:
    lab.submit("--hold", "true")
    lab.ok("edit", "1", "-c", "false", "-t", "5m", "--begin", "+1h", "-G2", "-C", "/")
    assert lab.ok("show", "1").endswith("  edited begin time, command, folder, gpus, time limit\n")


def test_show_takes_several_jobs(lab: Lab) -> None:
    lab.submit("--hold", "true")
    lab.submit("--hold", "-G0", "false")
    shown = without_times(lab.ok("show", "1", "2"))
    assert shown == (
        f"job         1\nstate       held\ncommand     true\nfolder      {lab.folder}\n"
        "gpus        1\nsubmitted   DATE\n\n"
        f"job         2\nstate       held\ncommand     false\nfolder      {lab.folder}\n"
        "gpus        none\nsubmitted   DATE\n"
    )


def test_show_needs_to_know_which_job(lab: Lab) -> None:
    refused(lab.run("show"), 2, "which job?", "stoker show 7, or stoker show @ for the last one")
    refused(lab.run("show", "5"), 1, "there is no job `5`", "`stoker ls` shows the jobs")


def test_why_names_what_people_did(lab: Lab) -> None:
    held = lab.submit("--hold", "true")
    assert why(lab, str(held)) == "job 1 waits: it is held; `stoker release 1` lets it run"
    begin = lab.submit("--begin", "+2h", "true")
    assert why(lab, str(begin)) == "job 2 waits: it may not begin before DATE"
    after = lab.submit("--after", "1,2:any", "true")
    assert why(lab, str(after)) == (
        "job 3 waits: job 1 must succeed first; it is held; job 2 must end first; it is queued"
    )
    notok = lab.submit("--after", "1:notok", "true")
    assert why(lab, str(notok)) == "job 4 waits: job 1 must fail first; it is held"


def test_why_names_who_holds_each_gpu(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    lab.submit("-t", "5h", gate.wait)
    gate.wait_for(2)
    lab.submit("true")
    lab.submit("true")
    assert why(lab, "3").startswith(
        "job 3 waits: it needs 1 gpu; gpu 0 runs job 1; gpu 1 runs job 2 for at most 4h59m more"
    )
    assert why(lab, "4").endswith("; 1 job in front of it")
    assert why(lab) == why(lab, "3")


def test_why_names_the_wide_job_that_a_gpu_is_kept_for(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    lab.submit("-G2", "true")
    lab.submit("true")
    assert why(lab, "2") == (
        "job 2 waits: it needs 2 gpus; gpu 0 runs job 1; gpu 1 is free; --gpus 1 would start it now"
    )
    assert re.fullmatch(
        r"job 3 waits: gpus [01], [01] are reserved for job 2, which come.* first.*"
        r"; 1 job in front of it",
        why(lab, "3"),
    )


def test_why_tells_that_the_queue_is_drained(lab: Lab) -> None:
    lab.ok("daemon", "drain")
    lab.submit("true")
    assert why(lab) == (
        "job 1 waits: the queue is drained: no job starts until `stoker daemon resume`"
    )


def test_why_tells_that_nobody_is_there_to_start_it(lab: Lab) -> None:
    lab.ok("daemon", "drain")
    lab.submit("true")
    lab.ok("daemon", "stop")
    assert why(lab).startswith(
        "job 1 waits: no daemon is running; `stoker daemon start` starts one; "
    )


def test_why_tells_that_a_job_has_become_impossible(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=4)
    lab.submit("--hold", "-G4", "true")
    lab.env["STOKER_DEVICES"] = "2"
    lab.ok("release", "1")
    assert why(lab) == "job 1 waits: it needs 4 gpus, and this host has 2"


def test_why_tells_that_all_cpu_slots_are_taken(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(STOKER_CPU_SLOTS="1")
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    lab.submit("true")
    assert why(lab, "2") == "job 2 waits: all 1 CPU slots are used by job 1"


def test_why_of_a_job_that_does_not_wait(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    lab.wait_until(lambda: lab.state(1) == "running")
    lab.submit("exit 3")
    lab.wait(2)
    assert why(lab, "all") == "job 1 is running on gpu 0\njob 2 is failed: exit 3"
    assert why(lab) == "nothing waits"
    assert as_json(lab.ok("why", "2", "--json")) == {
        "schema": 1,
        "jobs": [{"id": 2, "state": "failed", "reasons": ["it is failed: exit 3"]}],
    }


def test_a_stopped_job_is_shown_as_stopped(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit("-G0", gate.wait)
    gate.wait_for(1)
    lab.wait_until(lambda: lab.state(job) == "running")
    pid = lab.job(job)["pid"]
    os.kill(pid, signal.SIGSTOP)
    lab.wait_until(lambda: state_of(pid) == STOPPED)
    told = f"stopped: `kill -CONT {pid}` lets it go on"
    assert f"state       running: {told}\n" in lab.ok("show", str(job))
    assert f"[{told}]" in lab.ok("ls")
    assert told in lab.ok("why", str(job))
    os.kill(pid, signal.SIGCONT)
    gate.open()
    assert lab.wait(job) == 0


def test_a_job_tells_how_far_it_is(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit("-G0", f"echo '42%, epoch 3' > $STOKER_PROGRESS_FILE; {gate.wait}")
    gate.wait_for(1)
    lab.wait_until(lambda: lab.state(job) == "running")
    assert "[42%, epoch 3] echo" in lab.ok("ls")
    assert "progress    42%, epoch 3\n" in lab.ok("show", str(job))
    gate.open()
    lab.wait(job)
    assert "[42%" not in lab.ok("ls")
    lab.ok("rm", str(job))
    assert not list(lab.state_dir.glob("jobs/**/*.progress"))


def test_memory_is_told_only_where_it_is_the_jobs_own(lab: Lab) -> None:
    small = lab.submit("-G0", "true")
    large = lab.submit("-G0", f"{sys.executable} -c 'x = bytearray(90_000_000)'")
    lab.wait(small, large)
    assert "memory at most" not in lab.ok("show", str(small))
    assert lab.job(large)["max_rss_bytes"] > 90_000_000
