"""`stoker run`: jobs in the foreground, without a daemon."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.doors.helpers import Gate, as_json, refused, without_times
from tests.lab import Lab


def write(lab: Lab, *lines: str) -> str:
    (lab.folder / "jobs.txt").write_text("".join(f"{line}\n" for line in lines))
    return "jobs.txt"


def logs_of(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("*.log"))}


def test_a_job_file_runs_and_the_failures_are_counted(lab: Lab) -> None:
    write(lab, "echo one", "exit 3", "# a comment", "kill -9 $$")
    done = lab.run("run", "--log-dir", "logs", "jobs.txt")
    assert (done.returncode, done.stdout) == (2, "")
    logs = lab.folder / "logs"
    assert "job 2 failed: exit 3  exit 3\n" in done.stderr
    assert "job 3 failed: killed by SIGKILL  kill -9 $$\n" in done.stderr
    assert f"  log: {logs}/3.log\n" in done.stderr
    assert done.stderr.endswith(f"1 done, 2 failed; logs in {logs}\n")
    assert logs_of(logs) == {"1.log": "one\n", "2.log": "", "3.log": ""}
    assert lab.daemon_pid() is None


def test_the_exit_code_stops_at_101(lab: Lab) -> None:
    done = lab.run("run", "-q", "-", input="false\n" * 130)
    assert (done.returncode, done.stderr) == (101, "")
    assert lab.run("run", "-q", "-", input="false\n" * 100).returncode == 100


def test_one_command_streams_and_gives_its_own_code(lab: Lab) -> None:
    done = lab.run("run", "echo out; echo err >&2; exit 42")
    assert (done.returncode, done.stdout, done.stderr) == (42, "out\n", "err\n")
    words = lab.run("run", "printf", "%s|", "a  b", "*")
    assert (words.returncode, words.stdout) == (0, "a  b|*|")
    assert lab.run("run", "kill -9 $$").returncode == 128 + 9
    missing = lab.run("run", "no-such-program", "x")
    assert (missing.returncode, missing.stderr) == (
        127, "error: no-such-program: command not found\n",
    )  # fmt: skip


def test_jobs_get_the_devices_that_were_named(lab: Lab) -> None:
    write(lab, *["echo $CUDA_VISIBLE_DEVICES"] * 4)
    done = lab.run("run", "--devices", "3,5", "-l", "logs", "jobs.txt")
    assert done.returncode == 0
    assert set(logs_of(lab.folder / "logs").values()) == {"3\n", "5\n"}


def test_a_repeated_device_is_another_slot(lab: Lab) -> None:
    gate = Gate(lab.folder)
    write(lab, *[f"{gate.wait}; echo $CUDA_VISIBLE_DEVICES"] * 6)
    run = lab.popen("run", "-g", "0,1,1,2", "-l", "logs", "jobs.txt")
    gate.wait_for(4)
    gate.open()
    run.communicate(timeout=60)
    assert run.returncode == 0
    first_four = [logs_of(lab.folder / "logs")[f"{n}.log"].strip() for n in (1, 2, 3, 4)]
    assert sorted(first_four) == ["0", "1", "1", "2"]
    assert len(gate.arrived()) == 6


def test_devices_joined_by_plus_are_one(lab: Lab) -> None:
    write(lab, "echo $CUDA_VISIBLE_DEVICES", "echo $CUDA_VISIBLE_DEVICES")
    assert lab.run("run", "-g", "0+1", "-l", "logs", "jobs.txt").returncode == 0
    assert logs_of(lab.folder / "logs") == {"1.log": "0,1\n", "2.log": "0,1\n"}
    refused(lab.run("run", "-g", "0,,1", "jobs.txt"), 2, "`0,,1` is not a list of devices",
            "write 0,1,2 or 0+1,2+3")  # fmt: skip


def test_a_narrow_mask_of_the_caller_is_respected(lab: Lab) -> None:
    del lab.env["STOKER_DEVICES"]
    done = lab.run("run", "echo $CUDA_VISIBLE_DEVICES", CUDA_VISIBLE_DEVICES="7")
    assert done.stdout == "7\n"


def test_without_gpus_jobs_say_how_many_at_a_time(lab: Lab) -> None:
    gate = Gate(lab.folder)
    write(lab, *[gate.wait] * 5)
    run = lab.popen("run", "--devices", "", "-j", "3", "jobs.txt")
    gate.wait_for(3)
    assert len(gate.arrived()) == 3
    gate.open()
    run.communicate(timeout=60)
    assert run.returncode == 0


def test_jobs_start_while_their_producer_is_still_writing(lab: Lab) -> None:
    run = lab.popen("run", "--stream", "-", stdin=subprocess.PIPE)
    assert run.stdin is not None and run.stdout is not None
    for word in ("one", "two"):
        run.stdin.write(f"echo {word}\n")
        run.stdin.flush()
        assert run.stdout.readline() == f"{word}\n"
    run.stdin.write("echo no newline")
    out, _ = run.communicate(timeout=60)
    assert (run.returncode, out) == (0, "no newline\n")


def test_a_job_file_can_be_a_fifo(lab: Lab) -> None:
    fifo = lab.folder / "fifo"
    os.mkfifo(fifo)
    run = lab.popen("run", "--stream", "fifo")
    assert run.stdout is not None
    with fifo.open("w") as queue:
        queue.write("echo first\n")
        queue.flush()
        assert run.stdout.readline() == "first\n"
        queue.write("echo second\n")
    out, _ = run.communicate(timeout=60)
    assert (run.returncode, out) == (0, "second\n")


def test_a_job_that_reads_stdin_does_not_eat_the_queue(lab: Lab) -> None:
    done = lab.run("run", "-l", "logs", "-", input="cat\nwc -c\necho last\n")
    assert done.returncode == 0
    assert logs_of(lab.folder / "logs") == {"2.log": "0\n", "3.log": "last\n"}


def test_resume_skips_what_succeeded(lab: Lab) -> None:
    write(lab, "echo a >> ran", "echo b >> ran; [ -e fixed ]", "echo a >> ran")
    assert lab.run("run", "-g", "0", "jobs.txt").returncode == 1
    (lab.folder / "fixed").touch()
    done = lab.run("run", "-g", "0", "--resume", "jobs.txt")
    assert done.returncode == 0
    assert done.stderr.startswith("1 done, 2 skipped (done before); logs in ")
    assert (lab.folder / "ran").read_text().split() == ["a", "b", "a", "b"]
    again = lab.run("run", "-g", "0", "jobs.txt")
    assert again.stderr.startswith("3 done; logs in ")


def test_resume_needs_to_know_which_run(lab: Lab) -> None:
    refused(lab.run("run", "--resume", "-", input="true\n"), 2,
            "--resume needs to know which run", "give --log-dir, or a job file")  # fmt: skip


def test_a_second_run_in_the_same_folder_begins_anew(lab: Lab) -> None:
    (lab.folder / "logs").mkdir()
    (lab.folder / "logs" / "mine.log").write_text("kept")
    for lines in (["echo 1", "echo 2", "echo 3"], ["echo new"]):
        write(lab, *lines)
        assert lab.run("run", "-l", "logs", "jobs.txt").returncode == 0
    assert logs_of(lab.folder / "logs") == {"1.log": "new\n", "mine.log": "kept"}


def test_two_runs_cannot_share_a_folder(lab: Lab) -> None:
    gate = Gate(lab.folder)
    write(lab, gate.wait)
    run = lab.popen("run", "jobs.txt")
    gate.wait_for()
    done = lab.run("run", "jobs.txt")
    assert done.returncode == 1
    assert done.stderr.startswith("error: another run uses `")
    assert done.stderr.endswith("hint: wait for it, or give this one its own --log-dir\n")
    gate.open()
    run.communicate(timeout=60)
    assert run.returncode == 0
    assert len(gate.arrived()) == 1


def test_the_queues_own_folder_is_no_log_dir(lab: Lab) -> None:
    lab.submit("--hold", "true")
    done = lab.run("run", "-l", "state", "-", input="true\n")
    assert done.returncode == 2
    assert lab.states() == {1: "held"}


def test_retries_limits_and_environment_work_as_in_submit(lab: Lab) -> None:
    write(lab, "echo $A $STOKER_ATTEMPT; [ $STOKER_ATTEMPT = 2 ]",
          "sleep 600 #stoker -t 0.1s --retries 0")  # fmt: skip
    done = lab.run("run", "-r", "1", "-E", "A=x", "-l", "logs", "jobs.txt", STOKER_RETRY_DELAY="0")
    assert done.returncode == 1
    assert "job 2 failed: time limit  sleep 600\n" in done.stderr
    assert logs_of(lab.folder / "logs") == {"1.log": "x 1\n", "1.2.log": "x 2\n", "2.log": ""}


def test_results_as_json(lab: Lab) -> None:
    write(lab, "true", "exit 3")
    done = lab.run("run", "-g", "4", "--json", "-l", "logs", "jobs.txt")
    assert (done.returncode, done.stderr) == (1, "")
    result = as_json(done.stdout)
    assert result["log_dir"] == str(lab.folder / "logs")
    facts = [(j["id"], j["state"], j["exit_code"], j["attempts"]) for j in result["jobs"]]
    assert facts == [(1, "done", 0, 1), (2, "failed", 3, 1)]


@pytest.mark.parametrize("word", ["missing.txt", "/no/such/file"])
def test_a_missing_file_is_named(lab: Lab, word: str) -> None:
    done = lab.run("run", word)
    assert done.returncode == 127
    assert done.stderr.startswith(f"error: {word}: ")
    assert done.stderr.endswith(f"\nhint: `{word}` is no job file either\n")
    refused(lab.run("run", "-f", word), 2, f"cannot read `{word}`: No such file or directory")


def test_nothing_to_do_is_no_error(lab: Lab) -> None:
    done = lab.run("run", "-", input="\n# nothing\n")
    assert done.returncode == 0
    assert without_times(done.stderr).startswith("0 done; logs in ")


def test_a_long_file_may_come_by_redirection(lab: Lab) -> None:
    lines = lab.folder / "jobs.txt"
    lines.write_text("true\n" * 1500)
    with lines.open() as file:
        done = subprocess.run(
            [*lab.command, "run", "-g", "0,1,2,3", "-"], stdin=file, env=lab.env, cwd=lab.folder,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert (done.returncode, "1500 done" in done.stderr) == (0, True), done.stderr
