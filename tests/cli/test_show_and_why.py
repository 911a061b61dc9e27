"""`stoker show` and `stoker why`: all fields of a job, and why it waits."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable

from stoker import __version__
from stoker.client.views.job_tables import job_selection
from stoker.engine.store.database import open_database
from stoker.engine.supervisor.process_table import STOPPED, process_state
from stoker.features.results.failure_groups import job_failures
from tests.cli.helpers import as_json, refused, without_times
from tests.helpers import Gate
from tests.lab import Lab


def why(lab: Lab, *words: str) -> str:
    return without_times(lab.ok("why", *words)).rstrip("\n")


def test_show_prints_all_fields_of_a_finished_job(lab: Lab) -> None:
    first = lab.submit("true")
    lab.wait(first)
    job = lab.submit(
        "-n", "eval", "-T", "b", "-T", "a", "-p", "5", "-d", f"{first}:any", "-t", "2h", "-r", "1",
        "--restartable", "-e", "err", "echo", "hello world", STOKER_RETRY_DELAY="0",
    )  # fmt: skip
    assert lab.wait(job) == 0
    shown = without_times(lab.ok("show", str(job)))
    python = ".".join(map(str, sys.version_info[:3]))
    host = os.uname().nodename
    machine = f"host {host}, Python {python} (of Stoker), Stoker {__version__}, simulated"
    assert shown == (
        "job         2 (eval)\n"
        "state       done\n"
        "command     echo 'hello world'\n"
        f"directory   {lab.folder}\n"
        "GPUs        1 (GPU 0)\n"
        "priority    5\n"
        "tags        a, b\n"
        "after       1:any (met)\n"
        "limit       2h00m\n"
        "retries     1\n"
        "restartable yes\n"
        "submitted   DATE\n"
        "started     DATE\n"
        "ended       DATE\n"
        "duration    TIME\n"
        "used        TIME CPU time\n"
        f"ran with    {machine}\n"
        "profile     1 run of about TIME\n"
        f"log         {lab.state_dir}/jobs/0/2-1.log\n"
        f"stderr      {lab.folder}/err\n"
    )


def test_show_lists_attempts_and_events(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1, STOKER_RETRY_DELAY="0")
    job = lab.submit("-r", "1", "--hold", "kill -9 $$")
    lab.ok("priority", "3", str(job))
    lab.ok("release", str(job))
    assert lab.wait(job) == 128 + 9
    shown = without_times(lab.ok("show", str(job)))
    assert "state       failed: killed by SIGKILL\n" in shown
    assert shown.endswith(
        "attempt  started              duration  GPU  result\n"
        "1        DATE  TIME 0    killed by SIGKILL\n"
        "2        DATE  TIME 0    killed by SIGKILL\n"
        "DATE  priority 3\n"
        "DATE  released\n"
    )
    facts = lab.job(job)
    assert [event["kind"] for event in facts["events"]] == ["priority", "released"]
    assert [attempt["cause"] for attempt in facts["history"]] == ["signal", "signal"]
    assert (facts["signal"], facts["exit_code"]) == (9, None)


def test_job_that_waits_for_a_retry_has_no_gpu(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1, STOKER_RETRY_DELAY="1h")
    lab.submit("-r", "1", "exit 3")
    lab.wait_until(lambda: lab.job(1)["attempts"] == 1 and lab.state(1) == "queued")
    assert "\nGPUs        1\n" in lab.ok("show", "1")
    assert lab.job(1)["devices"] == []
    assert lab.job(1)["history"][0]["devices"] == [0]
    row = lab.ok("ls").splitlines()[1].split(None, 5)
    assert row[:5] == ["1", "queued", "-", "(1)", "-"]
    assert row[5].startswith("[retry in 4m") and row[5].endswith("] exit 3")


def test_show_names_edited_options(lab: Lab) -> None:
    lab.submit("--hold", "true")
    lab.ok("edit", "1", "-c", "false", "-t", "5m", "--begin", "+1h", "-G2", "-C", "/")
    assert lab.ok("show", "1").endswith(
        "  edited begin time, command, directory, request, time limit\n"
    )


def test_show_prints_several_jobs(lab: Lab) -> None:
    lab.submit("--hold", "true")
    lab.submit("--hold", "-G0", "false")
    shown = without_times(lab.ok("show", "1", "2"))
    assert shown == (
        f"job         1\nstate       held\ncommand     true\ndirectory   {lab.folder}\n"
        "GPUs        1\nsubmitted   DATE\n\n"
        f"job         2\nstate       held\ncommand     false\ndirectory   {lab.folder}\n"
        "GPUs        none\nsubmitted   DATE\n"
    )


def test_show_without_a_job_is_refused(lab: Lab) -> None:
    refused(
        lab.run("show"),
        2,
        "no job given",
        "example: stoker show 7, or stoker show @ for the last job",
    )
    refused(lab.run("show", "5"), 1, "there is no job 5", "`stoker ls` shows the jobs")


def test_why_explains_holds_begin_times_and_dependencies(lab: Lab) -> None:
    held = lab.submit("--hold", "true")
    assert why(lab, str(held)) == "job 1 waits: it is held; to let it start: stoker release 1"
    begin = lab.submit("--begin", "+2h", "true")
    assert why(lab, str(begin)) == "job 2 waits: it may not start before DATE"
    after = lab.submit("--after", "1,2:any", "true")
    assert why(lab, str(after)) == (
        "job 3 waits: job 1 must succeed first; it is held; job 2 must finish first; it is queued"
    )
    notok = lab.submit("--after", "1:notok", "true")
    assert why(lab, str(notok)) == "job 4 waits: job 1 must fail first; it is held"


def test_why_names_the_job_on_each_gpu(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    lab.submit("-t", "5h", gate.wait)
    gate.wait_for(2)
    lab.submit("true")
    lab.submit("true")
    assert why(lab, "3").startswith(
        "job 3 waits: it needs 1 GPU; GPU 0 runs job 1; GPU 1 runs job 2 for at most 4h59m more"
    )
    assert why(lab, "4").endswith("; 1 job in front of it")
    assert why(lab) == why(lab, "3")


def test_why_names_the_job_that_a_gpu_is_reserved_for(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    lab.submit("-G2", "true")
    lab.submit("true")
    assert why(lab, "2") == (
        "job 2 waits: it needs 2 GPUs; GPU 0 runs job 1; GPU 1 is free\n"
        "  start now with 1 GPU: stoker edit 2 --gpus 1"
    )
    assert re.fullmatch(
        r"job 3 waits: GPUs [01], [01] are reserved for job 2, which come.* first.*"
        r"; 1 job in front of it",
        why(lab, "3"),
    )


def test_commands_that_why_suggests_start_the_jobs(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit("-t", "30m", gate.wait)
    gate.wait_for()
    lab.submit("-G2", gate.wait)
    lab.submit(gate.wait)
    assert "[needs 2 GPUs, 1 is free]" in lab.ok("ls")
    assert "[behind 1 job · GPUs 0, 1 reserved for 2]" in lab.ok()
    assert "(reserved for 2)" in lab.ok()
    assert "reserved for 2" in lab.ok("gpus")
    assert [gpu["reserved_for"] for gpu in as_json(lab.ok("gpus", "--json"))["gpus"]] == [2, 2]
    (waiting,) = as_json(lab.ok("why", "3", "--json"))["jobs"]
    (change,) = waiting["what_if"]
    assert change == {
        "words": "start now with a time limit of at most 28m",
        "starts_in": 0.0,
        "command": "stoker edit 3 --time-limit 28m",
        "fields": {"time_limit": 1680.0},
    }
    lab.ok(*change["command"].split()[1:])
    gate.wait_for(2)
    lab.wait_until(lambda: lab.state(3) == "running")
    assert lab.state(2) == "queued"


def test_why_reports_a_drained_queue(lab: Lab) -> None:
    lab.ok("daemon", "drain")
    lab.submit("true")
    assert why(lab) == (
        "job 1 waits: the queue is drained: no job starts until `stoker daemon resume`"
    )


def test_why_reports_a_missing_daemon(lab: Lab) -> None:
    lab.ok("daemon", "drain")
    lab.submit("true")
    lab.ok("daemon", "stop")
    assert why(lab).startswith(
        "job 1 waits: no daemon is running; `stoker daemon start` starts one; "
    )


def test_why_reports_a_job_that_became_impossible(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=4)
    lab.submit("--hold", "-G4", "true")
    lab.env["STOKER_DEVICES"] = "2"
    lab.ok("release", "1")
    assert why(lab) == (
        "job 1 waits: it needs 4 GPUs, and this host has 2\n"
        "  start now with 2 GPUs: stoker edit 1 --gpus 2"
    )


def test_why_reports_that_all_cpu_slots_are_in_use(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(STOKER_CPU_SLOTS="1")
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    lab.submit("true")
    assert why(lab, "2") == "job 2 waits: all 1 CPU slots are used by job 1"


def test_why_prints_the_state_of_a_job_that_does_not_wait(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    lab.wait_until(lambda: lab.state(1) == "running")
    lab.submit("exit 3")
    lab.wait(2)
    assert why(lab, "all") == "job 1 is running on GPU 0\njob 2 failed: exit 3"
    assert why(lab) == "no jobs are waiting"
    assert as_json(lab.ok("why", "2", "--json")) == {
        "schema": 2,
        "jobs": [
            {
                "id": 2,
                "state": "failed",
                "reasons": ["it failed: exit 3"],
                "starts_in": None,
                "what_if": [],
            }
        ],
    }


def test_suspended_job_is_shown_as_suspended(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit("-G0", gate.wait)
    gate.wait_for(1)
    lab.wait_until(lambda: lab.state(job) == "running")
    pid = lab.job(job)["pid"]
    os.kill(pid, signal.SIGSTOP)
    lab.wait_until(lambda: process_state(pid) == STOPPED)
    shown = f"suspended; continue it with `kill -CONT {pid}`"
    assert f"state       running: {shown}\n" in lab.ok("show", str(job))
    assert f"[{shown}]" in lab.ok("ls")
    assert shown in lab.ok("why", str(job))
    os.kill(pid, signal.SIGCONT)
    gate.open()
    assert lab.wait(job) == 0


def test_progress_of_a_job_is_shown(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit("-G0", f"echo '42%, epoch 3' > $STOKER_PROGRESS_FILE; {gate.wait}")
    gate.wait_for(1)
    lab.wait_until(lambda: lab.state(job) == "running")
    assert "[42%, epoch 3, ETA " in lab.ok("ls")
    assert "progress    42%, epoch 3, ETA " in lab.ok("show", str(job))
    gate.open()
    lab.wait(job)
    assert "[42%" not in lab.ok("ls")
    lab.ok("rm", str(job))
    assert not list(lab.state_dir.glob("jobs/**/*.progress"))


def test_peak_memory_is_shown_only_if_it_is_of_the_job(lab: Lab) -> None:
    small = lab.submit("-G0", "true")
    large = lab.submit("-G0", f"{sys.executable} -c 'x = bytearray(90_000_000)'")
    lab.wait(small, large)
    assert "peak memory" not in lab.ok("show", str(small))
    assert lab.job(large)["max_rss_bytes"] > 90_000_000


def test_exception_that_ended_a_program_is_shown_and_groups_failures(lab: Lab) -> None:
    (lab.folder / "train.py").write_text("import sys\nraise ValueError(f'bad lr {sys.argv[1]}')\n")
    words = [f"{sys.executable} train.py {lr}\n" for lr in ("0.1", "0.1", "0.2")]
    lab.ok("submit", "-f", "-", input="".join(words) + "echo ValueErrors: 3; exit 1\n")
    done = lab.run("wait", "1-4")
    assert done.stderr.splitlines()[2:] == [
        "job 3 failed: exit 1: ValueError: bad lr 0.2", "job 4 failed: exit 1",
    ]  # fmt: skip
    assert "[exit 1: ValueError: bad lr 0.1] " in lab.ok("ls")
    assert "state       failed: exit 1: ValueError: bad lr 0.1\n" in lab.ok("show", "1")
    found = lab.job(1)
    assert (found["result"], found["cause"]) == ("exit 1: ValueError: bad lr 0.1", "exit")
    assert found["history"][0]["result"] == found["result"]
    db = open_database(str(lab.state_dir))
    groups = [(one.size, one.result, one.where) for one in job_failures(db, job_selection([]))]
    db.close()
    where = "state == 'failed' and result == 'exit 1: ValueError: bad lr 0.1'"
    assert groups[0] == (2, "exit 1: ValueError: bad lr 0.1", where)
    assert len(groups) == 3
    assert [job["id"] for job in as_json(lab.ok("ls", "--where", where, "--json"))["jobs"]] == [
        1,
        2,
    ]
