"""`stoker wait`: blocking, exit codes and notices."""

from __future__ import annotations

import pytest

from tests.cli.helpers import as_json, refused
from tests.features.sweeps.control.test_sweep import trials
from tests.helpers import Gate
from tests.lab import Lab


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("true", 0, "done"),
        ("exit 1", 1, "failed: exit 1"),
        ("exit 200", 200, "failed: exit 200"),
        ("kill -9 $$", 137, "failed: killed by SIGKILL"),
        ("kill -15 $$", 143, "failed: killed by SIGTERM"),
        ("kill -11 $$", 139, "failed: killed by SIGSEGV"),
    ],
)
def test_wait_for_one_job_returns_its_exit_code(
    lab: Lab, command: str, code: int, words: str
) -> None:
    job = lab.submit(command)
    done = lab.run("wait", str(job))
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"job {job} {words}\n")


def test_wait_for_several_jobs_returns_0_or_1(lab: Lab) -> None:
    lab.ok("submit", "-f", "-", input="true\ntrue\nexit 7\n")
    assert lab.wait(1, 2) == 0
    done = lab.run("wait", "1-3")
    assert (done.returncode, done.stderr) == (1, "job 1 done\njob 2 done\njob 3 failed: exit 7\n")
    assert lab.ok("wait", "--ignore-failures", "-q", "3") == ""


def test_wait_without_jobs_waits_for_all(lab: Lab) -> None:
    lab.submit("true")
    done = lab.run("wait")
    assert (done.returncode, done.stderr) == (0, "all jobs finished\n")
    lab.submit("false")
    done = lab.run("wait", "--all")
    assert (done.returncode, done.stderr) == (1, "all jobs finished: 1 failed\n")
    assert as_json(lab.run("wait", "--json").stdout)["counts"] == {"failed": 1}
    lab.ok("submit", "-f", "-", "--hold", input="exit 2\ntrue\n")
    lab.ok("cancel", "4")
    lab.ok("release", "3")
    lab.wait(3)
    done = lab.run("wait")
    note = "note: job 2 failed before and is not counted\n"
    assert done.stderr == f"{note}all jobs finished: 1 failed, 1 cancelled\n"
    assert done.returncode == 1


def test_wait_without_jobs_ignores_held_jobs(lab: Lab) -> None:
    lab.submit("--hold", "true")
    assert lab.wait() == 0


def test_wait_without_jobs_is_not_about_failures_of_the_past(lab: Lab) -> None:
    lab.wait(lab.submit("-n", "train", "exit 3"))
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    wait = lab.popen("wait")
    gate.wait_for()
    gate.open()
    note = "note: job 1 failed before and is not counted\n"
    assert wait.communicate()[1] == f"{note}all jobs finished\n"
    assert wait.returncode == 0
    assert lab.run("wait", "all").returncode == 0


def test_wait_for_a_name_means_unfinished_jobs_or_else_the_newest(lab: Lab) -> None:
    lab.wait(lab.submit("-n", "train", "exit 3"))
    assert lab.run("wait", "train").returncode == 3
    lab.wait(lab.submit("-n", "train", "true"))
    done = lab.run("wait", "train")
    assert (done.returncode, done.stderr) == (0, "job 2 done\n")
    gate = Gate(lab.folder)
    lab.submit("-n", "train", gate.wait)
    wait = lab.popen("wait", "train")
    gate.wait_for()
    gate.open()
    assert wait.communicate()[1] == "job 3 done\n"


def test_wait_counts_the_rerun_instead_of_the_failed_job(lab: Lab) -> None:
    flag = lab.folder / "flag"
    lab.ok("sweep", "-n", "s", f"test {{x}} = 0 -o -e {flag}", "x=0,1")
    lab.submit("-T", "t", f"test -e {flag}")
    assert lab.run("wait", "sweep:s").returncode == lab.run("wait", "t").returncode == 1
    flag.touch()
    lab.ok("rerun", "3")
    lab.ok("sweep", "rerun", "--failed", "s")
    done = lab.run("wait", "3-4")
    assert (done.returncode, done.stderr) == (0, "job 4 done\n")
    assert lab.run("wait", "t").returncode == 0
    assert lab.wait(3) == 1
    for word in ("sweep:s", "s"):
        done = lab.run("wait", word)
        assert (done.returncode, done.stderr) == (0, "job 1 done\njob 5 done\n")


def test_wait_for_a_sweep_waits_for_the_trials_that_its_search_adds(lab: Lab) -> None:
    lab.ok("sweep", "-n", "s", "-m", "tpe", "-N", "3", "--metric", "y:min", "--max-parallel", "1",
           "--gpus", "0", "echo stoker: y={x}", "x=interval(0,1)")  # fmt: skip
    assert lab.run("wait", "sweep:s").returncode == 0
    assert trials(lab, "s") == {"done": 3}
    lab.ok("sweep", "extend", "s", "1")
    assert lab.run("wait").returncode == 0
    assert trials(lab, "s") == {"done": 4}


def test_wait_any_returns_when_the_first_job_finishes(lab: Lab) -> None:
    gate = Gate(lab.folder)
    slow, fast = lab.submit(gate.wait), lab.submit("true")
    done = lab.run("wait", "--any", str(slow), str(fast))
    assert (done.returncode, done.stderr) == (0, f"job {fast} done\n")
    assert lab.state(slow) != "done"


def test_wait_any_without_jobs_waits_for_unfinished_jobs(lab: Lab) -> None:
    lab.submit("false")
    lab.wait(1)
    done = lab.run("wait", "--any")
    assert (done.returncode, done.stderr) == (0, "")
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    wait = lab.popen("wait", "--any")
    gate.wait_for()
    gate.open()
    wait.communicate()
    assert wait.returncode == 0


def test_wait_exits_with_124_after_its_timeout(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit(gate.wait)
    refused(
        lab.run("wait", "--timeout", "0.05", str(job)), 124, "1 job has not finished after 0.1s"
    )
    refused(lab.run("wait", "--timeout=50ms"), 2, "`--timeout`: `50ms` is not a duration",
            "write 90s, 30m, 2h, 1d, HH:MM:SS or D-HH:MM:SS")  # fmt: skip
    assert lab.state(job) != "done"


def test_wait_for_a_held_job_prints_a_notice(lab: Lab) -> None:
    job = lab.submit("--hold", "true")
    wait = lab.popen("wait", str(job))
    assert wait.stderr is not None
    assert wait.stderr.readline() == f"job {job} is held; to let it start: stoker release {job}\n"
    lab.ok("release", str(job))
    assert wait.communicate()[1] == f"job {job} done\n"
    assert wait.returncode == 0


def test_wait_starts_a_daemon(lab: Lab) -> None:
    job = lab.submit("--hold", "true")
    lab.ok("daemon", "drain")
    lab.ok("release", str(job))
    lab.ok("daemon", "stop")
    wait = lab.popen("wait", str(job))
    lab.wait_until(lambda: lab.daemon_pid() is not None)
    lab.ok("daemon", "resume")
    wait.communicate()
    assert wait.returncode == 0


def test_wait_survives_a_restart_of_the_daemon(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit(f"{gate.wait}; exit 5")
    gate.wait_for()
    wait = lab.popen("wait", str(job))
    lab.kill_daemon()
    lab.wait_until(lambda: lab.daemon_pid() is not None)  # the runner restarts it
    gate.open()
    wait.communicate()
    assert wait.returncode == 5


def test_wait_for_a_cancelled_job_returns_its_signal_or_1(lab: Lab) -> None:
    gate = Gate(lab.folder)
    running, waiting = lab.submit(gate.wait), lab.submit("--hold", "true")
    gate.wait_for()
    lab.ok("cancel", str(running), str(waiting))
    assert lab.wait(running) == 128 + 15
    assert lab.wait(waiting) == 1
    result = as_json(lab.run("wait", "--json", str(waiting)).stdout)["jobs"][0]
    assert (result["state"], result["cause"]) == ("cancelled", "user")


def test_wait_for_an_unknown_job_is_refused(lab: Lab) -> None:
    refused(lab.run("wait", "9"), 1, "there is no job 9", "`stoker ls` shows the jobs")
