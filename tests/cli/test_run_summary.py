"""The summary of a foreground run: finished jobs and jobs that did not run."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.cli.helpers import as_json
from tests.helpers import Gate
from tests.lab import Lab


def drained(lab: Lab, number: signal.Signals, *words: str, count: int = 8) -> tuple[int, str, str]:
    """The result of a run on two devices that gets a signal while two of its jobs run."""
    gate = Gate(lab.folder)
    (lab.folder / "jobs.txt").write_text(f"{gate.wait}\n" * count)
    run = lab.popen("run", "-l", "logs", *words, "jobs.txt")
    gate.wait_for(2)
    run.send_signal(number)
    if number in (signal.SIGINT, signal.SIGUSR1):
        assert run.stderr is not None
        run.stderr.readline()
        gate.open()
    out, errors = run.communicate()
    return run.returncode, out, errors


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGUSR1, 0)])
def test_stopped_run_prints_the_number_of_jobs_not_started(
    lab: Lab, number: signal.Signals, code: int
) -> None:
    assert drained(lab, number) == (
        code, "",
        f"2 done, 6 not started; continue with --resume; logs in {lab.folder}/logs\n",
    )  # fmt: skip


def test_stopped_run_counts_unread_jobs_of_the_file(lab: Lab) -> None:
    _, _, errors = drained(lab, signal.SIGUSR1, count=40_000)
    assert errors.startswith("2 done, 39998 not started; continue with --resume")


def test_quiet_run_prints_the_number_of_jobs_not_started(lab: Lab) -> None:
    wanted = "6 not started; continue with --resume\n"
    assert drained(lab, signal.SIGUSR1, "--quiet") == (0, "", wanted)


def test_json_has_the_number_of_jobs_not_started(lab: Lab) -> None:
    _, out, errors = drained(lab, signal.SIGUSR1, "--json")
    assert (as_json(out)["not_started"], len(as_json(out)["jobs"])) == (6, 2)
    assert errors == "6 not started; continue with --resume\n"


def test_cancelled_jobs_do_not_count_as_failed(lab: Lab) -> None:
    code, _, errors = drained(lab, signal.SIGTERM)
    assert code == 130
    assert "job 1 cancelled: by the user  " in errors
    assert "0 done, 2 cancelled, 6 not started; continue with --resume; logs" in errors


def test_skipped_jobs_do_not_count_as_not_started(lab: Lab) -> None:
    gate = Gate(lab.folder)
    (lab.folder / "jobs.txt").write_text("true\n" * 3000)
    lab.ok("run", "-q", "-l", "logs", "jobs.txt")
    with (lab.folder / "jobs.txt").open("a") as file:
        file.write(f"{gate.wait}\n" * 4)
    run = lab.popen("run", "-l", "logs", "--resume", "jobs.txt")
    gate.wait_for(2)
    run.send_signal(signal.SIGUSR1)
    assert run.stderr is not None
    run.stderr.readline()
    gate.open()
    _, errors = run.communicate()
    assert errors.startswith(
        "2 done, 3000 skipped (done before), 2 not started; continue with --resume"
    )


def test_stopped_run_counts_jobs_not_retried(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lines = f"exit 3 #stoker --retries 1\n{gate.wait}\n"
    run = lab.popen("run", "-l", "logs", "-", stdin=subprocess.PIPE,
                    env={"STOKER_RETRY_DELAY": "1h"})  # fmt: skip
    assert run.stdin is not None and run.stderr is not None
    run.stdin.write(lines)
    run.stdin.flush()
    gate.wait_for()
    lab.wait_until(lambda: (lab.folder / "logs" / "1.log").exists())
    run.send_signal(signal.SIGUSR1)
    run.stderr.readline()
    gate.open()
    assert run.wait() == 0  # the pipe may have more jobs
    _, errors = run.communicate()
    assert errors.startswith(
        "1 done, 1 not retried, the rest of the input was not read; continue with --resume;"
    )


def test_run_continues_when_stderr_is_full(lab: Lab) -> None:
    (lab.folder / "jobs.txt").write_text("false\nsleep 0.3; touch done\ntouch last\n")
    with (
        open("/dev/full", "w") as full,
        lab.popen("run", "--devices", "0,1", "jobs.txt", stderr=full) as run,
    ):
        assert run.wait() == 1
    assert (lab.folder / "done").exists() and (lab.folder / "last").exists()
