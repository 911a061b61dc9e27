"""`stoker run`: jobs in the foreground, without a daemon."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.helpers import Terminal, as_json, refused, without_times
from tests.helpers import Gate
from tests.lab import Lab


def write(lab: Lab, *lines: str) -> str:
    (lab.folder / "jobs.txt").write_text("".join(f"{line}\n" for line in lines))
    return "jobs.txt"


def logs_of(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("*.log"))}


def test_exit_code_of_a_job_file_is_the_number_of_failed_jobs(lab: Lab) -> None:
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


def test_exit_code_is_at_most_101(lab: Lab) -> None:
    done = lab.run("run", "-q", "-", input="false\n" * 130)
    assert (done.returncode, done.stderr) == (101, "")
    assert lab.run("run", "-q", "-", input="false\n" * 100).returncode == 100


def test_single_command_prints_its_output_and_returns_its_exit_code(lab: Lab) -> None:
    done = lab.run("run", "echo out; echo err >&2; exit 42")
    assert (done.returncode, done.stdout, done.stderr) == (42, "out\n", "err\n")
    words = lab.run("run", "printf", "%s|", "a  b", "*")
    assert (words.returncode, words.stdout) == (0, "a  b|*|")
    assert lab.run("run", "kill -9 $$").returncode == 128 + 9
    missing = lab.run("run", "no-such-program", "x")
    assert (missing.returncode, missing.stderr) == (
        127, "error: no-such-program: command not found\n",
    )  # fmt: skip


def test_repeated_device_has_another_slot(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=3)
    gate = Gate(lab.folder)
    write(lab, *[f"{gate.wait}; echo $CUDA_VISIBLE_DEVICES"] * 6)
    run = lab.popen("run", "-g", "0,1,1,2", "-l", "logs", "jobs.txt")
    gate.wait_for(4)
    gate.open()
    run.communicate()
    assert run.returncode == 0
    first_four = [logs_of(lab.folder / "logs")[f"{n}.log"].strip() for n in (1, 2, 3, 4)]
    assert sorted(first_four) == ["0", "1", "1", "2"]
    assert len(gate.arrived()) == 6


def test_jobs_option_limits_parallel_jobs_without_gpus(lab: Lab) -> None:
    gate = Gate(lab.folder)
    write(lab, *[gate.wait] * 5)
    run = lab.popen("run", "--gpus", "0", "-j", "3", "jobs.txt")
    gate.wait_for(3)
    assert len(gate.arrived()) == 3
    gate.open()
    run.communicate()
    assert run.returncode == 0


def test_jobs_start_while_their_producer_is_still_writing(lab: Lab) -> None:
    run = lab.popen("run", "--stream", "-", stdin=subprocess.PIPE)
    assert run.stdin is not None and run.stdout is not None
    for word in ("one", "two"):
        run.stdin.write(f"echo {word}\n")
        run.stdin.flush()
        assert run.stdout.readline() == f"{word}\n"
    run.stdin.write("echo no newline")
    out, _ = run.communicate()
    assert (run.returncode, out) == (0, "no newline\n")


def test_job_file_can_be_a_fifo(lab: Lab) -> None:
    fifo = lab.folder / "fifo"
    os.mkfifo(fifo)
    run = lab.popen("run", "--stream", "fifo")
    assert run.stdout is not None
    with fifo.open("w") as queue:
        queue.write("echo first\n")
        queue.flush()
        assert run.stdout.readline() == "first\n"
        queue.write("echo second\n")
    out, _ = run.communicate()
    assert (run.returncode, out) == (0, "second\n")


def test_job_that_reads_stdin_does_not_consume_job_lines(lab: Lab) -> None:
    done = lab.run("run", "-l", "logs", "-", input="cat\nwc -c\necho last\n")
    assert done.returncode == 0
    assert logs_of(lab.folder / "logs") == {"2.log": "0\n", "3.log": "last\n"}


def test_resume_skips_jobs_that_succeeded(lab: Lab) -> None:
    write(lab, "echo a >> ran", "echo b >> ran; [ -e fixed ]", "echo a >> ran")
    assert lab.run("run", "-g", "0", "jobs.txt").returncode == 1
    (lab.folder / "fixed").touch()
    done = lab.run("run", "-g", "0", "--resume", "jobs.txt")
    assert done.returncode == 0
    assert done.stderr.startswith("1 done, 2 skipped (done before); logs in ")
    assert (lab.folder / "ran").read_text().split() == ["a", "b", "a", "b"]
    again = lab.run("run", "-g", "0", "jobs.txt")
    assert again.stderr.startswith("3 done; logs in ")


def test_resume_distinguishes_lines_that_differ_only_in_a_variable(lab: Lab) -> None:
    write(
        lab,
        'echo "$SEED" >> ran; [ "$SEED" = 2 ] || [ -e fixed ] #stoker --env SEED=1',
        'echo "$SEED" >> ran; [ "$SEED" = 2 ] || [ -e fixed ] #stoker --env SEED=2',
    )
    assert lab.run("run", "-g", "0", "jobs.txt").returncode == 1
    (lab.folder / "fixed").touch()
    done = lab.run("run", "-g", "0", "--resume", "jobs.txt")
    assert done.stderr.startswith("1 done, 1 skipped (done before); logs in ")
    assert (lab.folder / "ran").read_text().split() == ["1", "2", "1"]


@pytest.mark.parametrize(
    ("first", "second", "shows", "expected"),
    [
        ("--cwd a", "--cwd b", "${PWD##*/}", "a"),
        ("--gpus 2", "--gpus 1", "$CUDA_VISIBLE_DEVICES", "0,1"),
        ("--gpu-ids 1", "--gpu-ids 0", "$CUDA_VISIBLE_DEVICES", "1"),
        ("--env-file one", "--env-file two", "$SEED", "1"),
        # The same job twice with different signals: identified by the order of the lines.
        ("-t 1h --signal USR1@60", "-t 1h --signal USR1@90", "$STOKER_WARN_SECONDS", "60.0"),
    ],
)
def test_resume_runs_the_line_that_failed(
    lab: Lab, first: str, second: str, shows: str, expected: str
) -> None:
    (lab.folder / "a").mkdir()
    (lab.folder / "b").mkdir()
    (lab.folder / "one").write_text("SEED=1\n")
    (lab.folder / "two").write_text("SEED=2\n")
    text = f'echo "{shows}" >> "{lab.folder}/ran"; [ "$STOKER_JOB_ID" != 1 ]'
    write(lab, f"{text} #stoker {first}", f"{text} #stoker {second}")
    assert lab.run("run", "-g", "0,1", "jobs.txt").returncode == 1
    (lab.folder / "ran").unlink()
    done = lab.run("run", "-g", "0,1", "--resume", "jobs.txt")
    assert done.stderr.startswith("1 done, 1 skipped (done before)")
    assert (lab.folder / "ran").read_text() == f"{expected}\n"
    assert lab.run("run", "-g", "0,1", "--resume", "jobs.txt").stderr.startswith("0 done, 2 skip")


def test_resume_with_other_limits_skips_jobs_that_succeeded(lab: Lab) -> None:
    write(lab, "echo a >> ran", "echo b >> ran; [ -e fixed ]")
    assert lab.run("run", "-g", "0", "jobs.txt").returncode == 1
    (lab.folder / "fixed").touch()
    flags = ("--retries", "2", "--time-limit", "9m", "--on-oom", "fail")
    done = lab.run("run", "-g", "0", "--resume", *flags, "jobs.txt")
    assert done.stderr.startswith("1 done, 1 skipped (done before)")


def test_resume_with_another_variable_runs_everything(lab: Lab) -> None:
    write(lab, "echo $SEED >> ran")
    lab.ok("run", "--env", "SEED=1", "jobs.txt")
    lab.ok("run", "--env", "SEED=2", "--resume", "jobs.txt")
    lab.ok("run", "--env", "SEED=1", "--resume", "jobs.txt")
    assert (lab.folder / "ran").read_text().split() == ["1", "2"]


def test_resume_reads_records_without_identities(lab: Lab) -> None:
    """Records of the first format are compared by command, folder and declared variables."""
    text = 'echo "$SEED" >> ran; [ "$STOKER_JOB_ID" != 1 ]'
    write(lab, f"{text} #stoker --env SEED=1", f"{text} #stoker --env SEED=2", "true")
    assert lab.run("run", "-l", "logs", "jobs.txt").returncode == 1
    records = sqlite3.connect(lab.folder / "logs" / "queue.db")
    with records:
        records.execute("UPDATE jobs SET dedupe = NULL")
    records.close()
    done = lab.run("run", "-l", "logs", "--resume", "jobs.txt")
    assert done.stderr.startswith("1 done, 2 skipped (done before)")
    assert sorted((lab.folder / "ran").read_text().split()) == ["1", "1", "2"]


def test_resume_without_file_or_log_dir_is_refused(lab: Lab) -> None:
    done = lab.run("run", "--resume", "-", input="true\n")
    message = "`--resume` needs a job file or `--log-dir`"
    refused(done, 2, message, "they identify the earlier run")


def test_second_run_in_the_same_folder_runs_all_jobs(lab: Lab) -> None:
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
    assert done.stderr.endswith("hint: wait until it ends, or use another --log-dir\n")
    gate.open()
    run.communicate()
    assert run.returncode == 0
    assert len(gate.arrived()) == 1


def test_state_folder_is_refused_as_log_dir(lab: Lab) -> None:
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


def test_run_prints_results_as_json(lab: Lab) -> None:
    write(lab, "true", "exit 3")
    done = lab.run("run", "-g", "1", "--json", "-l", "logs", "jobs.txt")
    assert (done.returncode, done.stderr) == (1, "")
    result = as_json(done.stdout)
    assert result["log_dir"] == str(lab.folder / "logs")
    facts = [(j["id"], j["state"], j["exit_code"], j["attempts"]) for j in result["jobs"]]
    assert facts == [(1, "done", 0, 1), (2, "failed", 3, 1)]
    assert (result["not_started"], result["not_retried"]) == (0, 0)


@pytest.mark.parametrize("word", ["missing.txt", "/no/such/file"])
def test_error_names_the_missing_file(lab: Lab, word: str) -> None:
    done = lab.run("run", word)
    assert (done.returncode, done.stderr) == (
        127, f"error: there is no job file or program `{word}`\n"
    )  # fmt: skip
    refused(lab.run("run", "-f", word), 2, f"cannot read `{word}`: No such file or directory")


def test_empty_job_file_is_not_an_error(lab: Lab) -> None:
    done = lab.run("run", "-", input="\n# nothing\n")
    assert done.returncode == 0
    assert without_times(done.stderr).startswith("0 done; logs in ")


def test_long_job_file_may_be_redirected_to_stdin(lab: Lab) -> None:
    lines = lab.folder / "jobs.txt"
    lines.write_text("true\n" * 1500)
    with lines.open() as file:
        done = subprocess.run(
            [*lab.command, "run", "-g", "0,0,1,1", "-"], stdin=file, env=lab.env, cwd=lab.folder,
            capture_output=True, text=True,
        )  # fmt: skip
    assert (done.returncode, "1500 done" in done.stderr) == (0, True), done.stderr


def test_options_may_follow_the_job_file(lab: Lab) -> None:
    write(lab, "echo $A $CUDA_VISIBLE_DEVICES")
    done = lab.run("run", "-E", "A=x", "jobs.txt", "--devices", "1", "-l", "logs", "-E", "B=y")
    assert done.returncode == 0, done.stderr
    assert logs_of(lab.folder / "logs") == {"1.log": "x 1\n"}
    (lab.folder / "train.py").write_text("print(1)")
    refused(
        lab.run("run", "train.py", "--lr", "1"), 2,
        "`train.py` is read as a job file, because it is not a program:"
        " `stoker run` has no option `--lr`",
        "to run it as a script, name its interpreter: stoker run python train.py",
    )  # fmt: skip
    refused(
        lab.run("run", "jobs.txt", "-q", "more.txt"), 2,
        "`jobs.txt` is read as a job file, because it is not a program: "
        "`more.txt` is not an option",
        "to run it as a script, name its interpreter: stoker run python jobs.txt",
    )  # fmt: skip


def test_words_after_a_job_file_get_a_hint(lab: Lab) -> None:
    write(lab, "true")
    done = lab.run("run", "jobs.txt", "more.txt")
    assert (done.returncode, done.stderr) == (
        127,
        "error: jobs.txt: command not found\n"
        "hint: a job file takes no arguments: stoker run jobs.txt\n",
    )


def test_program_takes_precedence_over_a_file_with_its_name(lab: Lab) -> None:
    (lab.folder / "printf").write_text("no job file")
    assert lab.run("run", "printf", "-x", cwd=lab.folder).returncode != 127


def test_file_and_a_command_exclude_each_other(lab: Lab) -> None:
    write(lab, "true")
    refused(lab.run("run", "-f", "jobs.txt", "echo", "lost"), 2,
            "`--file` and a command (`echo`) exclude each other")  # fmt: skip


def test_run_with_stream_names_failed_jobs(lab: Lab) -> None:
    write(lab, "echo out", "exit 3")
    done = lab.run("run", "--stream", "-g", "0", "jobs.txt")
    assert (done.returncode, done.stdout) == (1, "out\n")
    assert done.stderr == "job 2 failed: exit 3  exit 3\n1 done, 1 failed\n"


@pytest.mark.parametrize("flag", ["--hold", "--begin +1h", "--after 7"])
def test_queue_options_in_lines_of_a_run_are_refused(lab: Lab, flag: str) -> None:
    write(lab, "true", f"true #stoker {flag}")
    said = f"`{flag.split()[0]}` is only for jobs in the queue, not for `stoker run`"
    hint = "remove it, or use `stoker submit`"
    refused(lab.run("run", "jobs.txt"), 2, f"line 2: {said}", hint)


def test_run_refuses_a_sweep_of_held_trials(lab: Lab) -> None:
    (lab.folder / "s.toml").write_text(
        'command = "true {x}"\nresources = {hold = true}\n[params]\nx = [1]\n'
    )
    refused(lab.run("run", "s.toml"), 2,
            "`--hold` is only for jobs in the queue, not for `stoker run`",
            "remove it, or use `stoker submit`")  # fmt: skip


def test_error_names_the_impossible_line(lab: Lab) -> None:
    write(lab, "true", "", "true #stoker --gpus 9")
    for words in (("run", "jobs.txt"), ("submit", "-f", "jobs.txt")):
        said = "line 3: the job requests 9 GPUs, but this host has 2 GPUs"
        refused(lab.run(*words), 65, said, "use --gpus 2 or fewer")


def test_progress_line_shows_the_number_of_jobs(lab: Lab) -> None:
    gate = Gate(lab.folder)
    write(lab, "# two jobs", gate.wait, gate.wait)
    run = Terminal(lab, "run", "jobs.txt")
    run.read_until("0 of 2 done, 2 running")
    gate.open()
    run.read_until("2 done; logs in ")
    assert run.close() == 0
