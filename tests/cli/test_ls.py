"""`stoker ls` and `stoker status`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

from stoker.text.terminal import width
from tests.cli.helpers import Terminal, as_json, refused, shown, without_times
from tests.helpers import Gate
from tests.lab import Lab

FIELDS = (
    "id name state cause exit_code signal detail result progress command argv shell cwd gpus "
    "gpu_mem_bytes gpu_mem_auto gpu_ids prefer gpu_model min_gpu_mem_bytes exclusive share "
    "cpus mem_bytes mem_auto need on nodes option preemptible under_mps reserves "
    "claim_bytes claim_cpus claim_mem_bytes gpu_memory_peak_bytes gpu_use_percent "
    "gpu_energy_joules node "
    "node_gpus place devices priority tags starred note_line group after attempts "
    "retries restartable on_oom no_bind warm notify conda venv uv module container mount snapshot "
    "snapshot_dir "
    "preemptions gives_way_to time_limit "
    "submitted_at eligible_at started_at ended_at stop_requested pid user_seconds "
    "system_seconds max_rss_bytes stdout stderr batch "
    "batch_index array array_index rerun_of dedupe sweep trial"
)


def ids(lab: Lab, *words: str) -> list[int]:
    return [job["id"] for job in as_json(lab.ok("ls", "--json", *words))["jobs"]]


def some_jobs(lab: Lab) -> Gate:
    """1 done, 2 failed, 3 cancelled, 4 running, 5 queued behind it, 6 held."""
    gate = Gate(lab.folder)
    lab.wait(lab.submit("-T", "a", "true"))
    lab.wait(lab.submit("-n", "bad", "exit 3"))
    lab.submit("--hold", "-T", "a", "echo", "never  run")
    lab.ok("cancel", "3")
    lab.submit("-G2", "-n", "train", gate.wait)
    gate.wait_for()
    lab.submit("-T", "a", "true")
    lab.submit("--hold", "-G0", "true")
    lab.wait_until(lambda: lab.state(4) == "running")
    return gate


def test_ls_shows_every_state_in_one_table(lab: Lab) -> None:
    gate = some_jobs(lab)
    assert without_times(lab.ok("ls")) == (
        "ID  STATE      TIME GPU  NAME   COMMAND\n"
        "1   done       TIME 0    -      true\n"
        "2   failed     TIME 0    bad    [exit 3] exit 3\n"
        "3   cancelled  -     (1)  -      [by the user] echo 'never  run'\n"
        f"4   running    TIME 0,1  train  {gate.wait}\n"
        "5   queued     -     (1)  -      [no GPU is free] true\n"
        "6   held       -     -    -      true\n"
    )


def test_stoker_without_arguments_shows_gpus_and_waiting_jobs(lab: Lab) -> None:
    some_jobs(lab)
    wanted = (
        "GPU  MODEL      TIME JOB\n"
        "0    simulated  TIME 4 train\n"
        "1    simulated  TIME 4 train\n"
        "\n"
        "1 of 64 cores reserved\n"
        "\n"
        "ID  STATE   TIME GPU  NAME  COMMAND\n"
        "5   queued  -     (1)  -     [no GPU is free] true\n"
        "6   held    -     -    -     true\n"
        "\n"
        "1 held, 1 queued, 1 running, 1 done, 1 failed, 1 cancelled\n"
    )
    assert without_times(lab.ok()) == wanted
    assert without_times(lab.ok("status")) == wanted


def test_empty_queue_is_reported(lab: Lab, new_lab: Callable[..., Lab]) -> None:
    assert lab.ok("ls") == "no jobs\n"
    assert lab.ok() == (
        "GPU  MODEL      TIME  JOB\n"
        "0    simulated  -     -\n"
        "1    simulated  -     -\n"
        "\n"
        "no waiting jobs\n"
    )
    assert new_lab().ok() == "no GPUs, no running jobs\n\nno waiting jobs\n"


def test_status_lists_cpu_jobs(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(STOKER_CPU_SLOTS="3")
    gate = Gate(lab.folder)
    lab.submit("-n", "one", gate.wait)
    gate.wait_for()
    lab.wait_until(lambda: lab.state(1) == "running")
    assert without_times(lab.ok()) == (
        "CPU JOBS (of 3)  TIME COMMAND\n"
        "1                TIME 1 one\n"
        "\n"
        "1 of 64 cores reserved\n"
        "\n"
        "no waiting jobs\n"
        "\n"
        "1 running\n"
    )


def test_status_warns_when_no_job_can_start(lab: Lab) -> None:
    lab.submit("--hold", "true")
    lab.ok("daemon", "drain")
    assert lab.ok().endswith("\n\ndrained: no job starts before `stoker daemon resume`\n")
    lab.ok("release", "1")
    lab.ok("daemon", "stop")
    assert "\n\nno daemon is running; start it with `stoker daemon start`\n" in lab.ok()


def test_status_can_be_printed_as_json(lab: Lab) -> None:
    some_jobs(lab)
    status = as_json(lab.ok("status", "--json"))
    keys = "counts daemon devices host problems progress running schema waiting"
    assert sorted(status) == keys.split()
    assert status["problems"] == []
    assert status["daemon"]["pid"] == lab.daemon_pid()
    assert status["devices"] == [
        {"index": i, "visible": str(i), "slots": 1, "model": "simulated", "uuid": f"SIM-{i}",
         "jobs": [4]}
        for i in (0, 1)
    ]  # fmt: skip
    assert [job["id"] for job in status["running"]] == [4]
    assert [job["id"] for job in status["waiting"]] == [5]
    assert status["counts"] == {
        "held": 1, "queued": 1, "running": 1, "done": 1, "failed": 1, "cancelled": 1
    }  # fmt: skip


def test_filters_exclude_other_jobs(lab: Lab) -> None:
    some_jobs(lab)
    assert ids(lab, "--state", "failed") == [2]
    assert ids(lab, "-s", "waiting", "-s", "active") == [4, 5, 6]
    assert ids(lab, "--state=final") == [1, 2, 3]
    assert ids(lab, "--tag", "a") == [1, 3, 5]
    assert ids(lab, "--tag", "a", "--state", "done") == [1]
    assert ids(lab, "--name", "train") == [4]
    assert ids(lab, "-n", "2", "--state", "all") == [5, 6]
    assert ids(lab, "-n0") == []
    assert lab.ok("ls", "--tag", "nobody") == (
        "no matching jobs (1 held, 1 queued, 1 running, 1 done, 1 failed, 1 cancelled)\n"
    )
    assert lab.ok("ls", "--state", "held").endswith(
        "\n1 held, 1 queued, 1 running, 1 done, 1 failed, 1 cancelled; 5 jobs not shown"
        " (see -n, --state)\n"
    )


def test_selectors_select_jobs(lab: Lab) -> None:
    some_jobs(lab)
    assert ids(lab, "2") == [2]
    assert ids(lab, "2-4", "6") == [2, 3, 4, 6]
    assert ids(lab, "1,3,5-6") == [1, 3, 5, 6]
    assert ids(lab, "3..4") == [3, 4]
    assert ids(lab, "@") == [6]
    assert ids(lab, "@~1") == [5]
    assert ids(lab, "running") == [4]
    assert ids(lab, "final", "held") == [1, 2, 3, 6]
    assert ids(lab, "a") == [1, 3, 5]
    assert ids(lab, "all", "--state", "queued") == [5]
    assert ids(lab, "all", "-n", "2") == [5, 6]
    refused(lab.run("ls", "99"), 1, "there is no job 99", "`stoker ls` shows the jobs")
    refused(lab.run("ls", "50-60"), 1, "there are no jobs `50-60`", "`stoker ls` shows the jobs")
    refused(lab.run("ls", "4-2"), 2, "the range `4-2` is reversed", "write 2-4")
    refused(
        lab.run("ls", "@x"), 2, "`@x` is not a selector",
        "write @ for the last job, @~1 for the one before",
    )  # fmt: skip


def test_json_has_all_fields_of_schema_1(lab: Lab) -> None:
    lab.submit("exit 3")
    lab.wait()
    listing = as_json(lab.ok("ls", "--json"))
    assert sorted(listing) == [
        "counts", "jobs", "progress", "schema", "starts", "truncated", "waits",
    ]  # fmt: skip
    (job,) = listing["jobs"]
    assert " ".join(job) == FIELDS
    assert (job["state"], job["cause"], job["exit_code"], job["signal"]) == (
        "failed",
        "exit",
        3,
        None,
    )
    assert job["submitted_at"] <= job["started_at"] <= job["ended_at"]
    assert job["ended_at"].endswith("+00:00")
    assert job["stdout"] == str(lab.state_dir / "jobs" / "0" / "1-1.log")


def test_closed_pipe_is_not_an_error(lab: Lab) -> None:
    lab.ok("submit", "--hold", "-f", "-", input="true\n" * 3000)
    stoker = f"{sys.executable} -m stoker"
    for command in (f"{stoker} ls -n 3000 | head -1", f"{stoker} ls | true"):
        done = subprocess.run(
            ["bash", "-c", f"{command}; echo ${{PIPESTATUS[0]}}"],
            env=lab.env,
            capture_output=True,
            text=True,
        )
        assert done.stderr == ""
        assert done.stdout.endswith("\n0\n") or done.stdout == "0\n"


def test_full_disk_of_stdout_is_reported(lab: Lab) -> None:
    with open("/dev/full", "w") as full:
        listing = lab.popen("ls", stdout=full)
        _, errors = listing.communicate()
    assert (listing.returncode, errors) == (
        75,
        "error: cannot write: No space left on device\nhint: free some space\n",
    )


def test_watch_shows_changes_until_interrupted(lab: Lab) -> None:
    lab.submit("--hold", "true")
    watch = lab.popen("ls", "--watch")
    assert watch.stdout is not None
    assert watch.stdout.readline().startswith("ID")
    assert "held" in watch.stdout.readline()
    lab.ok("release", "1")
    while "done" not in watch.stdout.readline():
        pass
    watch.send_signal(signal.SIGINT)
    assert watch.wait() == 0
    watch.communicate()


def test_watch_keeps_its_header_on_a_small_terminal(lab: Lab) -> None:
    lab.ok("submit", "--hold", "-f", "-", input="true\n" * 60)
    watch = Terminal(lab, "ls", "--watch", lines=12)
    watch.read_until("not shown")
    watch.interrupt()
    assert watch.close() == 0
    screen = watch.text.partition("\x1b[J")[0].split("\n")
    assert screen[0].endswith("\x1b[HID  STATE  TIME  GPU  NAME  COMMAND\x1b[K")
    assert len(screen) == 12 and screen[-1] == ""  # eleven lines, and the cursor on the last one
    assert "60 held; 51 jobs not shown" in screen[-2]


def test_watch_prints_how_many_lines_do_not_fit(lab: Lab) -> None:
    watch = Terminal(lab, "status", "--watch", lines=4)
    watch.read_until("more lines")
    watch.interrupt()
    assert watch.close() == 0
    assert len(watch.text.partition("\x1b[J")[0].split("\n")) == 4


def test_watch_with_json_prints_a_line_per_change(lab: Lab) -> None:
    lab.submit("--hold", "true")
    watch = lab.popen("ls", "--watch", "--json")
    assert watch.stdout is not None
    assert as_json(watch.stdout.readline())["jobs"][0]["state"] == "held"
    lab.ok("release", "1")
    states = []
    while "done" not in states:
        states.append(as_json(watch.stdout.readline())["jobs"][0]["state"])
    assert "held" not in states  # unchanged documents are not printed again
    watch.send_signal(signal.SIGINT)
    assert watch.wait() == 0
    watch.communicate()


def test_ls_shows_what_a_job_waits_for(lab: Lab) -> None:
    lab.submit("--hold", "true")
    lab.submit("--after", "1", "true")
    lab.submit("--after", "1:any,2,1", "--begin", "2031-01-01T12:00", "true")
    lab.ok("daemon", "drain")
    lab.submit("true")
    assert lab.ok("ls") == (
        "ID  STATE   TIME  GPU  NAME  COMMAND\n"
        "1   held    -     (1)  -     true\n"
        "2   queued  -     (1)  -     [after 1] true\n"
        "3   queued  -     (1)  -     [after 1, 2, begins 2031-01-01 12:00] true\n"
        "4   queued  -     (1)  -     [draining] true\n"
    )
    assert "3   queued  -     (1)  -     [after 1, 2, begins 2031-01-01 12:00] true\n" in lab.ok()


def test_ls_fills_its_limit_with_finished_jobs(lab: Lab) -> None:
    lab.ok("submit", "--hold", "-f", "-", input="true\n" * 70)
    lab.ok("cancel", "1-65")
    assert len(ids(lab)) == 50
    assert ids(lab)[-5:] == [66, 67, 68, 69, 70]
    assert len(ids(lab, "-n", "68")) == 68


def test_incomplete_counts_are_marked(lab: Lab) -> None:
    lab.ok("submit", "--hold", "-q", "-f", "-", input="true\n" * 20_100)
    assert lab.ok("ls").endswith("\n20000+ held; 19950+ jobs not shown (see -n, --state)\n")


def test_wide_characters_do_not_break_the_table(lab: Lab) -> None:
    lab.submit("--hold", "-n", "日本語", "echo 1")
    lab.submit("--hold", "-n", "cafe\u0301", "echo 2")
    lines = lab.ok("ls").splitlines()
    assert lines[1:] == [
        "1   held   -     (1)  日本語  echo 1",
        "2   held   -     (1)  cafe\u0301    echo 2",
    ]
    narrow = shown(lab, "ls", columns=34).splitlines()
    assert all(width(line) <= 34 for line in narrow)


def test_long_name_leaves_room_for_the_command_on_a_narrow_terminal(lab: Lab) -> None:
    lab.submit("--hold", "-n", "a-very-long-name-for-one-job", "python train.py --lr 0.1")
    assert shown(lab, "ls", columns=40).splitlines() == [
        "ID  STATE  TIME  GPU  NAME      COMMAND",
        "1   held   -     (1)  a-ver...  pytho...",
    ]
    assert shown(lab, "ls", columns=60).splitlines()[1] == (
        "1   held   -     (1)  a-very-long-name-...  python train...."
    )


def test_ls_prints_a_notice_when_jobs_wait_without_a_daemon(lab: Lab) -> None:
    lab.submit("--hold", "true")
    assert lab.run("ls").stderr == ""
    lab.ok("daemon", "drain")
    lab.submit("true")
    assert lab.run("ls").stderr == ""
    lab.ok("daemon", "stop")
    done = lab.run("ls")
    assert done.stderr == "no daemon is running; start it with `stoker daemon start`\n"
    assert "no daemon" not in done.stdout


def test_ls_and_status_say_that_there_are_more_jobs(lab: Lab) -> None:
    lab.ok("submit", "--hold", "-f", "-", input="true\n" * 13)
    assert "\n3 more waiting jobs (see stoker ls)\n" in lab.ok()
    done = lab.run("ls", "all", "-n", "12", "--json")
    assert as_json(done.stdout)["truncated"] is True
    assert done.stderr == "only 12 of the matching jobs are listed; -n N lists more\n"
    assert done.stderr in lab.ok("ls", "1-13", "-n", "12")
    done = lab.run("ls", "all", "-n", "13", "--json")
    assert (as_json(done.stdout)["truncated"], done.stderr) == (False, "")
