"""`stoker log`: the output of jobs as a terminal shows it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.helpers import as_json, refused
from tests.helpers import Gate
from tests.lab import Lab


def job_with_output(lab: Lab, content: bytes) -> int:
    (lab.folder / "content").write_bytes(content)
    job = lab.submit("cat content")
    assert lab.wait(job) == 0
    return job


def test_log_without_job_shows_the_last_job(lab: Lab) -> None:
    job_with_output(lab, b"first\n")
    job_with_output(lab, b"second\n")
    assert lab.ok("log") == "second\n"
    assert lab.ok("logs", "@~1") == "first\n"


def test_log_prints_only_the_last_lines(lab: Lab) -> None:
    job_with_output(lab, b"".join(b"line %d\n" % n for n in range(30_000)))
    assert lab.ok("log", "-n", "2") == "line 29998\nline 29999\n"
    assert lab.ok("log", "-n0") == ""
    assert lab.ok("log", "-n", "20000").startswith("line 10000\n")
    assert lab.ok("log", "-n", "99999").startswith("line 0\n")


def test_last_line_without_newline_is_shown(lab: Lab) -> None:
    job_with_output(lab, b"one\ntwo")
    assert lab.ok("log") == "one\ntwo\n"
    assert lab.ok("log", "-n1") == "two\n"


def test_progress_bars_are_collapsed_and_raw_keeps_them(lab: Lab) -> None:
    content = b"start\n" + b"".join(b"\r%3d%%" % n for n in range(101)) + b"\nend\n"
    job_with_output(lab, content)
    assert lab.ok("log") == "start\n100%\nend\n"
    assert lab.ok("log", "--raw") == content.decode()


def test_unsafe_escape_sequences_are_removed(lab: Lab) -> None:
    job_with_output(
        lab,
        b"\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m\x1b[6n\xc2\x9b31m ok\x07\n"
        b"caf\xc3\xa9 \xff\n\x1b]52;c;aGk=\x1b\\gone\n",
    )
    assert lab.ok("log") == "red31m ok\ncafé \\xff\ngone\n"


def test_log_can_be_printed_as_json(lab: Lab) -> None:
    job = job_with_output(lab, b"a\nb\n\rc\n")
    path = str(lab.state_dir / "jobs" / "0" / f"{job}-1.log")
    assert as_json(lab.ok("log", "--json", "-n2")) == {
        "schema": 2, "job": job, "state": "done", "path": path, "lines": ["b", "c"],
    }  # fmt: skip


def test_log_of_a_job_without_output_yet_prints_a_notice(lab: Lab) -> None:
    job = lab.submit("--hold", "true")
    done = lab.run("log", str(job))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "job 1 is held and has no output yet; to wait: stoker log -f 1\n"
    assert lab.ok("log", "--path") == "\n"


def test_log_of_a_job_that_never_started_prints_a_notice(lab: Lab) -> None:
    lab.submit("--hold", "true")
    lab.submit("--after", "1", "true")
    lab.ok("cancel", "1")
    assert lab.run("log", "1").stderr == (
        "job 1 has no output because it never started: cancelled, by the user\n"
    )
    assert lab.run("log", "2").stderr == (
        "job 2 has no output because it never started: cancelled, job 1 was cancelled\n"
    )


def test_follow_with_json_prints_an_object_per_line(lab: Lab) -> None:
    lab.submit("echo a; printf '\\033[31mb\\rc'; exit 3")
    done = lab.run("log", "-f", "--json")
    assert done.returncode == 0
    assert [as_json(line) for line in done.stdout.splitlines()] == [
        {"schema": 2, "job": 1, "line": "a"},
        {"schema": 2, "job": 1, "line": "c"},
        {"schema": 2, "job": 1, "state": "failed", "exit_code": 3, "signal": None},
    ]


def test_log_path_prints_the_path_of_the_log(lab: Lab) -> None:
    job_with_output(lab, b"hello\n")
    assert Path(lab.ok("log", "--path").strip()).read_text() == "hello\n"


def test_removed_log_is_an_error(lab: Lab) -> None:
    job_with_output(lab, b"x\n")
    path = lab.ok("log", "--path").strip()
    Path(path).unlink()
    refused(lab.run("log"), 1, f"the log of job 1 does not exist any more: {path}")


def test_log_of_an_unknown_attempt_is_refused(lab: Lab) -> None:
    job_with_output(lab, b"x\n")
    refused(lab.run("log", "--attempt", "2"), 1, "job 1 has only 1 attempt")


def test_log_of_several_jobs_is_refused(lab: Lab) -> None:
    lab.ok("submit", "--hold", "-f", "-", input="true\ntrue\n")
    refused(
        lab.run("log", "1-2"),
        2,
        "`stoker log` shows one job, but 2 are selected",
        "example: stoker log 7",
    )


def test_follow_waits_for_the_start_and_reads_until_the_end(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit("--hold", f"echo begun; {gate.wait}; echo ended; exit 3")
    follow = lab.popen("log", "-f", str(job))
    assert follow.stderr is not None and follow.stdout is not None
    assert follow.stderr.readline() == (
        f"job {job} is held; waiting for it to start (see `stoker why {job}`)\n"
    )
    lab.ok("release", str(job))
    assert follow.stdout.readline() == "begun\n"
    gate.open()
    out, errors = follow.communicate()
    assert (out, errors) == ("ended\n", f"job {job} failed: exit 3\n")
    assert follow.returncode == 0


def test_follow_continues_through_retries(lab: Lab) -> None:
    job = lab.submit("--hold", "-r", "2", "echo try $STOKER_ATTEMPT; [ $STOKER_ATTEMPT = 3 ]")
    lab.env["STOKER_RETRY_DELAY"] = "0.01"
    follow = lab.popen("log", "-f", str(job))
    assert follow.stderr is not None
    follow.stderr.readline()
    lab.ok("release", str(job))
    out, errors = follow.communicate()
    assert out.endswith("try 3\n")
    assert errors == f"job {job} done\n"


def test_follow_reads_the_output_file_of_the_user(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit("-o", "out", f"echo one; {gate.wait}; echo two")
    gate.wait_for()
    follow = lab.popen("log", "-f", "-n", "1", str(job))
    assert follow.stdout is not None
    assert follow.stdout.readline() == "one\n"
    gate.open()
    assert follow.communicate()[0] == "two\n"


def test_interrupted_follow_does_not_stop_the_job(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit(f"echo here; {gate.wait}")
    gate.wait_for()
    lab.wait_until(lambda: lab.state(job) == "running")
    follow = lab.popen("log", "-f")
    assert follow.stdout is not None
    assert follow.stdout.readline() == "here\n"
    follow.send_signal(signal.SIGINT)
    _, errors = follow.communicate()
    assert (follow.returncode, errors) == (
        0,
        f"\njob {job} keeps running; to end it: stoker cancel {job}\n",
    )
    assert lab.state(job) == "running"


def test_follow_of_a_finished_job_prints_its_log(lab: Lab) -> None:
    job = job_with_output(lab, b"a\nb\n")
    done = lab.run("log", "-f", str(job))
    assert (done.stdout, done.stderr) == ("a\nb\n", f"job {job} done\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--", "no-such-program", "x"), "stoker: no-such-program: command not found\n"),
        (("--cwd", "gone", "true"), "stoker: cannot enter the folder "),
        (("--", "./plain"), "stoker: ./plain: Permission denied\n"),  # made non-executable later
    ],
)
def test_log_of_a_job_that_could_not_start_says_why(
    lab: Lab, words: tuple[str, ...], reason: str
) -> None:
    (lab.folder / "gone").mkdir()
    (lab.folder / "plain").write_text("echo x\n")
    (lab.folder / "plain").chmod(0o755)
    job = lab.submit("--hold", *words)
    (lab.folder / "gone").rmdir()
    (lab.folder / "plain").chmod(0o644)
    lab.ok("release", str(job))
    lab.wait(job)
    assert lab.log(job).startswith(reason)


def test_log_of_a_foreground_job_that_could_not_start_says_why(lab: Lab) -> None:
    (lab.folder / "jobs.txt").write_text("no-such-program x\n")
    assert lab.run("run", "-q", "-l", "logs", "jobs.txt").returncode == 1
    assert (lab.folder / "logs" / "1.log").read_text() == (
        "stoker: no-such-program: command not found\n"
    )


def test_name_used_twice_means_the_newest_job(lab: Lab) -> None:
    for word in ("old", "new"):
        lab.wait(lab.submit("-n", "train", "echo", word))
    done = lab.run("log", "train")
    assert (done.returncode, done.stdout) == (0, "new\n")
    assert done.stderr == "2 jobs match `train`; this is the newest, job 2\n"
