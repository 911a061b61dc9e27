"""`hog`: the contract of gpu-hog, its defects fixed, and the features of its TODO list."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.compat.hog.jobs import Folder
from stoker.compat.hog.options import Unusable, gpu_ids, parse
from stoker.compat.hog.run import Workers
from stoker.errors import UsageError
from tests.compat.test_foreground import other_locale
from tests.helpers import Gate, is_alive
from tests.lab import Lab, wait_until

__all__ = ["other_locale"]  # a fixture

DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}"


class HogLab(Lab):
    """A lab for `hog`; `close` kills what still runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.command = [sys.executable, "-P", "-m", "stoker.compat.hog.main"]
        self._started: list[subprocess.Popen[str]] = []

    def popen(self, *words: str, **kwargs: Any) -> subprocess.Popen[str]:
        self._started.append(super().popen(*words, **kwargs))
        return self._started[-1]

    def write(self, *lines: str, name: str = "jobs.txt") -> str:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))
        return name

    def hog(self, *lines: str, gpus: str = "0", more: tuple[str, ...] = ()) -> str:
        """Run a job file with these lines, which must succeed; returns the stdout of hog."""
        return self.ok("--job_file", self.write(*lines), "--gpus", gpus, *more)

    def tree(self, folder: str = "hog_run") -> list[str]:
        paths = (self.folder / folder).rglob("*")
        return sorted(str(p.relative_to(self.folder / folder)) for p in paths if p.is_file())

    def read(self, *names: str) -> str:
        return self.folder.joinpath("hog_run", *names).read_text()

    def close(self) -> None:
        for run in self._started:
            run.kill()
            with run:  # closes its pipes
                pass
        super().close()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[HogLab]:
    lab = HogLab(tmp_path)
    yield lab
    lab.close()


def wait_for_exit(pids: list[int]) -> None:
    wait_until(lambda: not any(map(is_alive, pids)), what=f"the end of {pids}")


# -- the contract ----------------------------------------------------------------------------------


def test_readme_example_runs_and_writes_the_files_of_the_original(lab: HogLab) -> None:
    """hog --job_file foo.txt --gpus 1,2,3"""
    lab.write("echo $CUDA_VISIBLE_DEVICES; echo oops >&2", "exit 3", name="foo.txt")
    done = lab.run("--job_file", "foo.txt", "--gpus", "1,2,3")
    assert (done.returncode, done.stderr) == (
        1, "job 2 failed: exit 3; see hog_run/job_2/job_2.ERR\n",
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[:3] == ["Worker 1 starting", "Worker 2 starting", "Worker 3 starting"]
    assert re.fullmatch(rf"\(MAIN\): Starting at {DATE}", lines[3])
    assert sorted(lines[4:8]) == [
        "(GPU 1): running echo $CUDA_VISIBLE_DEVICES; echo oops >&2",
        "(GPU 2): running exit 3", "job 1 completed", "job 2 completed",
    ]  # fmt: skip
    assert lines[8:11] == ["(GPU 1): exiting", "(GPU 2): exiting", "(GPU 3): exiting"]
    assert re.fullmatch(rf"\(MAIN\): 2 jobs completed at {DATE}", lines[11])
    assert re.fullmatch(r"\(MAIN\): Lapsed Time: 0:00:\d\d\.\d{6}", lines[12])
    assert len(lines) == 13
    assert lab.tree() == [
        "job_1/INFO", "job_1/SUCCESS", "job_1/job_1.ERR", "job_1/job_1.OUT",
        "job_2/FAILURE", "job_2/INFO", "job_2/job_2.ERR", "job_2/job_2.OUT",
    ]  # fmt: skip
    assert (lab.read("job_1", "job_1.OUT"), lab.read("job_1", "job_1.ERR")) == ("1\n", "oops\n")
    assert lab.read("job_1", "SUCCESS") == lab.read("job_2", "FAILURE") == ""


def test_info_file_starts_with_name_gpu_and_command(lab: HogLab) -> None:
    lab.hog("echo 'a  b' # not a comment line", gpus="7")
    info = lab.read("job_1", "INFO").splitlines()
    assert info[:3] == [
        "job name: job_1", "ran on gpu: 7", "command: echo 'a  b' # not a comment line",
    ]  # fmt: skip
    assert info[3] == "exit code: 0"
    assert re.fullmatch(f"started: {DATE}", info[4]) and re.fullmatch(f"ended: {DATE}", info[5])


def test_blank_lines_and_comments_are_neither_run_nor_numbered(lab: HogLab) -> None:
    lab.hog("", "# no", "  \t echo a  ", "   # nor this", "echo b #yes", "\r", "echo c\\", " d")
    outs = [lab.read(f"job_{n}", f"job_{n}.OUT") for n in (1, 2, 3)]
    assert outs == ["a\n", "b\n", "c d\n"]
    assert "command: echo a\n" in lab.read("job_1", "INFO")


def test_prefix_and_output_dir_set_the_folder_names(lab: HogLab) -> None:
    lab.hog("true", more=("--prefix", "run-", "--output_dir", "a/b/c"))
    assert lab.tree("a/b/c") == [
        "run-1/INFO", "run-1/SUCCESS", "run-1/run-1.ERR", "run-1/run-1.OUT",
    ]  # fmt: skip
    lab.hog("true", more=("--prefix=", "--out", "x"))
    assert "1/1.OUT" in lab.tree("x")


def test_repeated_id_runs_several_jobs_on_one_gpu(lab: HogLab) -> None:
    """--gpus 0,0,1,2,2,2"""
    gate = Gate(lab.folder)
    lab.write(*[gate.wait] * 7)
    run = lab.popen("--job_file", "jobs.txt", "--gpus", "0,0,1,2,2,2")
    gate.wait_for(6)
    gate.open()
    out, _ = run.communicate()
    assert run.returncode == 0
    started = re.findall(r"^\(GPU (\d)\): running", out, re.MULTILINE)[:6]
    assert started == ["0", "0", "1", "2", "2", "2"]
    assert Counter(re.findall(r"^Worker (\d)", out, re.MULTILINE)) == {"0": 2, "1": 1, "2": 3}


def test_jobs_run_in_the_callers_folder_and_environment_with_sh(lab: HogLab) -> None:
    lines = ["pwd; echo $COLOUR $0", "x=1 && echo $x || echo no; exit 0", "[[ 1 ]] && echo bash"]
    lab.write(*lines)
    done = lab.run("--job_file", "jobs.txt", "--gpus", "0", COLOUR="red", SHELL="/bin/bash")
    assert done.returncode in (0, 1)  # the meaning of [[ depends on /bin/sh
    first = lab.read("job_1", "job_1.OUT").splitlines()
    assert first == [str(lab.folder), "red /bin/sh"]
    assert lab.read("job_2", "job_2.OUT") == "1\n"


@pytest.mark.parametrize("path", ["test.py", "sub/test.py", "test"])
def test_yielder_supplies_the_jobs(lab: HogLab, path: str) -> None:
    """hog --job_yielder test.py"""
    folder = (lab.folder / path).parent
    folder.mkdir(exist_ok=True)
    (folder / "neighbor.py").write_text("WORD = 'found'\n")
    (folder / "test.py").write_text(
        "from neighbor import WORD\n\ndef yielder():\n"
        "    for n in range(3):\n        yield f'echo {WORD} {n}'\n    yield 7\n"
    )
    done = lab.run("--job_yielder", path, "--gpus", "0")
    assert done.returncode == 1  # there is no program `7`
    assert [lab.read(f"job_{n}", f"job_{n}.OUT") for n in (1, 2, 3)] == [
        "found 0\n", "found 1\n", "found 2\n",
    ]  # fmt: skip
    assert "\ncommand: 7\n" in lab.read("job_4", "INFO")


def test_yielded_job_may_have_several_lines(lab: HogLab) -> None:
    lab.write("def yielder():", "    yield 'echo one\\necho two'", name="y.py")
    lab.ok("--job_yielder", "y.py", "--gpus", "0")
    assert lab.read("job_1", "job_1.OUT") == "one\ntwo\n"
    assert "command: echo one\necho two\n" in lab.read("job_1", "INFO")


def test_yielder_file_may_have_the_name_of_a_standard_module(lab: HogLab) -> None:
    lab.write("def yielder():", "    yield 'true'", name="signal.py")
    lab.ok("--job_yielder", "signal.py", "--gpus", "0", cwd=lab.folder)
    assert "job_1/SUCCESS" in lab.tree()


def test_reused_folder_keeps_only_the_new_marker(lab: HogLab) -> None:
    lab.hog("echo old; echo old")
    lab.write("false")
    assert lab.run("--job_file", "jobs.txt", "--gpus", "4").returncode == 1
    assert lab.tree() == ["job_1/FAILURE", "job_1/INFO", "job_1/job_1.ERR", "job_1/job_1.OUT"]
    assert lab.read("job_1", "job_1.OUT") == ""
    assert lab.read("job_1", "INFO").startswith("job name: job_1\nran on gpu: 4\ncommand: false\n")
    lab.hog("true")
    assert "job_1/FAILURE" not in lab.tree()


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("1,2,3", ["1", "2", "3"]),
        (" 0 , 1", ["0", "1"]),
        ("0,0,1", ["0", "0", "1"]),
        ("007", ["7"]),
        ("-1", ["-1"]),
        ("0 1", ["0", "1"]),
        ("0-2", ["0", "1", "2"]),
        ("0+1,2+3", ["0,1", "2,3"]),
        ("GPU-ab-cd,MIG-1", ["GPU-ab-cd", "MIG-1"]),
    ],
)
def test_gpu_lists_are_parsed_to_slots(text: str, slots: list[str]) -> None:
    assert gpu_ids(text) == slots


@pytest.mark.parametrize("text", ["", "a", "0,", "1,,2", "0.5", "cuda0", "0+"])
def test_invalid_gpu_ids_are_errors(text: str) -> None:
    with pytest.raises(Unusable):
        gpu_ids(text)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--gpus", "0"],
        ["--job_file", "f"],
        ["--job_file", "f", "--job_yielder", "y", "--gpus", "0"],
        ["--job_file", "f", "--gpus", "0", "1"],
        ["--job_file", "f", "--gpus", "0", "--nope"],
        ["--job_file", "f", "--gpus", "0", "--jobs_per_gpu", "0"],
        ["--job", "f", "--gpus", "0"],
    ],
)
def test_invalid_command_lines_raise_usage_errors(words: list[str]) -> None:
    with pytest.raises(UsageError):
        parse(words)


def test_options_of_gpu_hog_can_be_abbreviated() -> None:
    options = parse(["--job_f", "f", "--gpu=0", "--p", "x", "--o", "y"])
    assert (options.job_file, options.gpus) == ("f", "0")
    assert (options.prefix, options.output_dir) == ("x", "y")
    assert parse(["--job_y", "f", "--g", "0"]).job_yielder == "f"


# -- defects of the original -----------------------------------------------------------------------


def test_error_is_one_sentence_and_leaves_no_folder_behind(lab: HogLab) -> None:
    lab.write("x = 1", name="empty.py")
    lab.write("raise RuntimeError('boom')", name="broken.py")
    lab.write("yielder = 5", name="five.py")
    lab.write("def yielder(): return None", name="none.py")
    lab.write("def yielder(x): yield x", name="needy.py")
    lab.write("def job(", name="bad.py")
    for words, code, sentence in (
        (["--job_file", "missing"], 1, "cannot read the job file `missing`: No such file"),
        (["--job_file", "."], 1, "cannot read the job file `.`: Is a directory"),
        (["--job_yielder", "missing.py"], 1, "there is no yielder file `missing.py`"),
        (["--job_yielder", "empty.py"], 1, "cannot use the yielder of `empty.py`: AttributeError"),
        (["--job_yielder", "broken.py"], 1, "cannot use the yielder of `broken.py`: RuntimeError: "
                                            "boom"),
        (["--job_yielder", "five.py"], 1, "cannot use the yielder of `five.py`: TypeError: 'int' "
                                          "object is not callable\n"),
        (["--job_yielder", "none.py"], 1, "cannot use the yielder of `none.py`: TypeError: "
                                          "'NoneType' object is not iterable\n"),
        (["--job_yielder", "needy.py"], 1, "cannot use the yielder of `needy.py`: TypeError: "
                                           "yielder() missing 1 required positional argument: 'x'"
                                           "\n"),
        (["--job_file", "empty.py", "--gpus", "x"], 1, "`x` is not a GPU ID"),
        (["--job_file", "empty.py", "--function", "five.py:nope"], 1,
         "there is no function `nope` in `five.py`"),
        (["--job_file", "empty.py", "--function", "five.py"], 1, "there is no function `job` in "),
        (["--job_file", "empty.py", "--function", "bad.py"], 1,
         "`bad.py` is not a valid Python file: "),
        (["--job_file", "empty.py", "--function", "."], 1, "cannot read `.`: Is a directory"),
        (["--job_file", "empty.py", "--function", "no.py"], 1, "there is no function file `no.py`"),
        (["--job_file", "empty.py", "--job_yielder", "y"], 2, "argument --job_yielder: not "),
    ):  # fmt: skip
        done = lab.run("--gpus", "0", *words)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert done.stderr.startswith(f"error: {sentence}"), done.stderr
        assert "Traceback" not in done.stderr
    assert not (lab.folder / "hog_run").exists()


def test_no_job_is_lost_when_a_yielder_pauses(lab: HogLab) -> None:
    """Jobs start as soon as they are yielded; workers wait without a time limit."""
    fifo = lab.folder / "fifo"
    os.mkfifo(fifo)
    lab.write("def yielder():", "    yield 'echo first > began'",
               "    yield 'echo ' + open('fifo').read()", name="y.py")  # fmt: skip
    run = lab.popen("--job_yielder", "y.py", "--gpus", "0,1")
    wait_until((lab.folder / "hog_run/job_1/SUCCESS").exists)
    assert run.poll() is None
    fifo.write_text("second")
    out, _ = run.communicate()
    assert run.returncode == 0 and "(MAIN): 2 jobs completed at" in out
    assert lab.read("job_2", "job_2.OUT") == "second\n"


def test_job_file_can_be_a_pipe(lab: HogLab) -> None:
    run = lab.popen("--job_file", "/dev/stdin", "--gpus", "0", stdin=subprocess.PIPE)
    assert run.stdin is not None
    run.stdin.write("echo one\n")
    run.stdin.flush()
    wait_until((lab.folder / "hog_run/job_1/SUCCESS").exists)
    out, _ = run.communicate("cat")  # the job's own stdin is empty
    assert run.returncode == 0 and "job 2 completed" in out


def test_jobs_before_an_error_of_the_yielder_are_run(lab: HogLab) -> None:
    lab.write("def yielder():", "    yield 'echo ran'", "    1 / 0", name="y.py")
    done = lab.run("--job_yielder", "y.py", "--gpus", "0")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: the yielder failed: ZeroDivisionError: division by zero (File "
    )
    assert "Traceback" not in done.stderr
    assert lab.read("job_1", "job_1.OUT") == "ran\n"


def test_killed_yielder_is_reported(lab: HogLab) -> None:
    lab.write("import os", "def yielder():", "    yield 'echo ran'", "    os.kill(os.getpid(), 9)",
               name="y.py")  # fmt: skip
    done = lab.run("--job_yielder", "y.py", "--gpus", "0")
    assert done.returncode == 1
    assert done.stderr.startswith("error: the yielder failed: its process was killed\n")


def test_yielder_exits_normally(lab: HogLab) -> None:
    """Its files are flushed and its exit handlers run."""
    lab.write("import atexit", "log = open('log', 'w')", "atexit.register(open, 'at_exit', 'w')",
               "def yielder():", "    for n in range(3):", "        log.write(f'{n}\\n')",
               "        yield 'true'", name="y.py")  # fmt: skip
    lab.ok("--job_yielder", "y.py", "--gpus", "0")
    assert (lab.folder / "log").read_text() == "0\n1\n2\n"
    assert (lab.folder / "at_exit").exists()


def test_yielder_may_start_processes(lab: HogLab) -> None:
    lab.write("import subprocess", "def yielder():", "    for n in range(5):",
               "        yield subprocess.run(['echo', f'exit {n}'], stdout=-1, text=True).stdout",
               name="y.py")  # fmt: skip
    assert lab.run("--job_yielder", "y.py", "--gpus", "0").returncode == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_yielder_ends_with_hog(lab: HogLab, number: signal.Signals) -> None:
    lab.write("import os", "def yielder():", "    yield f'echo {os.getpid()} > pid'",
               "    while True: pass", name="y.py")  # fmt: skip
    run = lab.popen("--job_yielder", "y.py", "--gpus", "0")
    wait_until((lab.folder / "hog_run/job_1/SUCCESS").exists)
    pid = int((lab.folder / "pid").read_text())
    assert is_alive(pid)
    run.send_signal(number)
    run.communicate()
    wait_for_exit([pid])


@pytest.mark.parametrize("command", ["", "  ", "# a comment", "\n # one\n# and another"])
def test_empty_command_fails_as_in_the_original(lab: HogLab, command: str) -> None:
    lab.write("def yielder():", f"    yield {command!r}", "    yield '# a comment\\necho a'",
               name="y.py")  # fmt: skip
    assert lab.run("--job_yielder", "y.py", "--gpus", "0").returncode == 1
    assert {"job_1/FAILURE", "job_2/SUCCESS"} <= set(lab.tree())
    assert "exit code: 2\n" in lab.read("job_1", "INFO")
    assert lab.read("job_1", "job_1.ERR") != ""


def test_yielded_command_with_a_nul_byte_counts_as_failed(lab: HogLab) -> None:
    lab.write("def yielder():", "    yield 'echo a\\0b'", "    yield 'echo c'", name="y.py")
    assert lab.run("--job_yielder", "y.py", "--gpus", "0").returncode == 1
    assert lab.read("job_2", "job_2.OUT") == "c\n"


def test_command_bytes_are_unchanged_in_every_locale(
    lab: HogLab, other_locale: dict[str, str]
) -> None:
    word = "\u00e9"
    lab.env.update(other_locale)
    (lab.folder / "jobs.txt").write_bytes(f"printf %s {word}\n".encode() + b"printf '\xff'\n")
    words = ("--gpus", "0", "--log_file", "hog.log")
    done = lab.run("--job_file", "jobs.txt", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"(GPU 0): running printf %s {word}\n" in done.stdout
    folder = lab.folder / "hog_run"
    assert (folder / "job_1/job_1.OUT").read_bytes() == word.encode()
    assert f"\ncommand: printf %s {word}\n".encode() in (folder / "job_1/INFO").read_bytes()
    assert b"\ncommand: printf '\xff'\n" in (folder / "job_2/INFO").read_bytes()
    assert f"running printf %s {word}\n".encode() in (lab.folder / "hog.log").read_bytes()
    assert "skipped" in lab.run("--job_file", "jobs.txt", "--resume", *words).stderr


@pytest.mark.parametrize("options", [(), ("--log_file", "/dev/full")])
def test_jobs_continue_when_stderr_or_the_log_is_full(
    lab: HogLab, options: tuple[str, ...]
) -> None:
    lab.write("echo a\0b", "exit 3", "echo ran")
    with open("/dev/full", "w") as full:
        run = lab.popen("--job_file", "jobs.txt", "--gpus", "0", *options, stderr=full)
    run.communicate()
    assert run.returncode == 2
    assert lab.read("job_3", "job_3.OUT") == "ran\n"


def test_background_process_outlives_its_job(lab: HogLab) -> None:
    gate = Gate(lab.folder)
    lab.write(gate.wait, "touch late", name="leave")
    arrived = f"[ -s '{gate.arrivals}' ]"
    lab.hog(f"sh leave & until {arrived}; do sleep 0.02; done", "true")
    (pid,) = gate.arrived()
    lab.hog("true")  # another whole run, which does not end it
    assert is_alive(pid)
    gate.open()
    wait_until((lab.folder / "late").exists)


def test_run_leaves_only_the_output_folder_behind(lab: HogLab) -> None:
    lab.hog("true")
    assert sorted(path.name for path in lab.folder.iterdir()) == ["hog_run", "jobs.txt"]


def test_ctrl_c_during_imports_prints_nothing(lab: HogLab) -> None:
    lab.write("import os", "os.kill(os.getpid(), 2)", "for n in (): pass", name="sqlite3.py")
    done = lab.run("--job_file", "none", "--gpus", "0", PYTHONPATH=str(lab.folder))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_signal_leaves_workers_or_jobs_behind(lab: HogLab, number: signal.Signals) -> None:
    gate = Gate(lab.folder)
    lab.write(*[gate.wait] * 5)
    run = lab.popen("--job_file", "jobs.txt", "--gpus", "0,1")
    pids = gate.wait_for(2)
    run.send_signal(number)
    out, _ = run.communicate()
    wait_for_exit(pids)
    gate.open()
    assert len(gate.arrived()) == 2
    if number != signal.SIGKILL:
        assert run.returncode == 130
        assert "(MAIN): 2 jobs completed at" in out
        assert {"job_1/FAILURE", "job_2/FAILURE"} <= set(lab.tree())
        ended_by = (
            2 if number == signal.SIGINT else 15
        )  # Ctrl-C is sent to the jobs, as in the original
        assert f"exit code: -{ended_by}\n" in lab.read("job_1", "INFO")


def test_sigusr1_lets_running_jobs_finish_and_starts_no_others(lab: HogLab) -> None:
    gate = Gate(lab.folder)
    lab.write(*[gate.wait] * 4)
    run = lab.popen("--job_file", "jobs.txt", "--gpus", "0")
    gate.wait_for()
    run.send_signal(signal.SIGUSR1)
    assert run.stderr is not None
    assert run.stderr.readline() == "draining: running jobs finish, no more are started\n"
    gate.open()
    out, _ = run.communicate()
    assert run.returncode == 0 and "(MAIN): 1 jobs completed at" in out


def test_exit_code_counts_failures_unless_exit_zero_is_set(lab: HogLab) -> None:
    words = ("--job_file", lab.write("false", "true", "kill -9 $$"), "--gpus", "0")
    assert lab.run(*words).returncode == 2
    assert lab.run(*words, "--exit-zero").returncode == 0
    assert lab.run(*words, STOKER_COMPAT_EXIT_ZERO="1").returncode == 0
    assert "exit code: -9\n" in lab.read("job_3", "INFO")


def test_missing_program_is_reported_in_the_err_file(lab: HogLab) -> None:
    lab.write("no-such-program --x")
    assert lab.run("--job_file", "jobs.txt", "--gpus", "0").returncode == 1
    assert "no-such-program: " in lab.read("job_1", "job_1.ERR")
    assert "exit code: 127\n" in lab.read("job_1", "INFO")


def test_line_with_a_nul_byte_counts_as_failed(lab: HogLab) -> None:
    lab.write("echo a\0b", "echo c")
    done = lab.run("--job_file", "jobs.txt", "--gpus", "0")
    assert done.returncode == 1
    assert done.stderr == "job 1 contains a NUL byte; it is not run and counts as failed\n"
    assert lab.read("job_2", "job_2.OUT") == "c\n"


def test_resume_skips_jobs_that_succeeded(lab: HogLab) -> None:
    lines = ["echo a >> ran", "echo b >> ran; [ -e fixed ]", "echo c >> ran"]
    lab.write(*lines)
    assert lab.run("--job_file", "jobs.txt", "--gpus", "0").returncode == 1
    (lab.folder / "fixed").touch()
    lab.write(*lines[:2], "echo changed >> ran")
    lab.ok("--job_file", "jobs.txt", "--gpus", "0", "--resume")
    assert (lab.folder / "ran").read_text().split() == ["a", "b", "c", "b", "changed"]


def test_folder_of_the_original_counts_as_done(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), "job_1")
    folder.begin("0", "echo a")
    assert not folder.has_succeeded("echo a")
    Path(folder.file("SUCCESS")).touch()
    assert folder.has_succeeded("echo a")
    assert not folder.has_succeeded("echo") and not folder.has_succeeded("echo b")


# -- the TODO list of the original -----------------------------------------------------------------


def run_script(lab: HogLab, text: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    (lab.folder / "script.py").write_text(text)
    return subprocess.run([sys.executable, "script.py"], env=lab.env, cwd=lab.folder, text=True,
                          capture_output=True, **kwargs)  # fmt: skip


def test_hog_decorates_a_function_that_yields_commands(lab: HogLab) -> None:
    done = run_script(lab, """
from stoker.compat.hog.main import hog

@hog(gpus="0,1", output_dir="out", prefix="p")
def sweep(first):
    "Doc."
    for n in range(3):
        yield f"exit {n + first}"
    yield "echo 'a\\nb'"

print("failed:", sweep(0), sweep.__name__, sweep.__doc__)
""")  # fmt: skip
    assert done.stdout.endswith("failed: 2 sweep Doc.\n"), done.stderr
    assert "Worker 1 starting\n" in done.stdout
    assert (lab.folder / "out/p4/p4.OUT").read_text() == "a\nb\n"


def test_run_jobs_raises_errors_for_invalid_options(lab: HogLab) -> None:
    done = run_script(lab, """
from stoker.compat.hog.main import run_jobs
from stoker.errors import Error
for gpus, more in (("x", {}), ("0", {"nope": 1}), ("0", {"output_dir": "script.py"})):
    try:
        run_jobs(["true"], gpus, **more)
    except Error as error:
        print(error.message)
""")  # fmt: skip
    assert done.stdout.splitlines() == [
        "`x` is not a GPU ID", "unrecognized arguments: --nope=1",
        "cannot create the folder `script.py`: File exists",
    ]  # fmt: skip
    assert done.stderr == ""


def test_run_jobs_returns_the_exact_number_of_failures(lab: HogLab) -> None:
    done = run_script(lab, """
from stoker.compat.hog.main import run_jobs
print(run_jobs(["exit 1"] * 103 + ["true"], [0, 1], exit_zero=True))
""")  # fmt: skip
    assert done.stdout.splitlines()[-1] == "103"


def test_jobs_before_an_error_of_the_caller_are_run(lab: HogLab) -> None:
    done = run_script(lab, """
from stoker.compat.hog.main import run_jobs
def commands():
    yield "touch ran"
    raise KeyError("mine")
try:
    run_jobs(commands(), "0")
except KeyError as error:
    print(error)
""")  # fmt: skip
    assert done.stdout.splitlines()[-1] == "'mine'"
    assert (lab.folder / "ran").exists()


def test_run_jobs_raises_when_it_is_interrupted(lab: HogLab) -> None:
    done = run_script(lab, """
from stoker.compat.hog.main import run_jobs
try:
    run_jobs(["kill $PPID; sleep 60"], "0")
except RuntimeError as error:
    print(error)
""")  # fmt: skip
    assert done.stdout.splitlines()[-1] == "hog was interrupted"


def test_jobs_of_run_jobs_end_with_the_calling_process(lab: HogLab) -> None:
    gate = Gate(lab.folder)
    (lab.folder / "script.py").write_text(
        f"from stoker.compat.hog.main import run_jobs\nrun_jobs([{gate.wait!r}], [0])\n"
    )
    lab.command = [sys.executable]
    run = lab.popen("script.py")
    pids = gate.wait_for()
    run.kill()
    wait_for_exit(pids)


def test_job_function_can_be_replaced(lab: HogLab) -> None:
    lab.write("import os, sys", "from stoker.compat.hog.main import job as default",
               "def job(job_name, job_instruction, output_dir, gpu_id):",
               "    print(job_name, job_instruction, output_dir, gpu_id, flush=True)",
               "    if job_instruction == 'raise': raise ValueError('boom')",
               "    return default(job_name, job_instruction, output_dir, gpu_id)",
               "def other(*args): return args[1] != 'no'", name="mine.py")  # fmt: skip
    lab.write("echo $CUDA_VISIBLE_DEVICES", "raise", "exit 5")
    done = lab.run("--job_file", "jobs.txt", "--gpus", "3", "--function", "mine.py")
    assert done.returncode == 2
    assert lab.read("job_1", "job_1.OUT") == "job_1 echo $CUDA_VISIBLE_DEVICES hog_run 3\n3\n"
    assert "ValueError: boom" in lab.read("job_2", "job_2.ERR")
    assert "exit code: 5\n" in lab.read("job_3", "INFO")
    assert "command: exit 5\n" in lab.read("job_3", "INFO")
    lab.write("yes", "no")
    done = lab.run("--job_file", "jobs.txt", "--gpus", "3", "--function", "mine.py:other")
    assert done.returncode == 1
    assert {"job_1/SUCCESS", "job_2/FAILURE"} <= set(lab.tree())


def test_log_file_has_the_console_lines_with_times(lab: HogLab) -> None:
    lab.write("false")
    done = lab.run("--job_file", "jobs.txt", "--gpus", "0", "--log_file", "hog.log")
    logged = (lab.folder / "hog.log").read_text().splitlines()
    words = [re.sub(r"^\d{4}-\d\d-\d\d [\d:,]+ ", "", line) for line in logged]
    assert "INFO Worker 0 starting" in words
    assert "WARNING job 1 failed: exit 1; see hog_run/job_1/job_1.ERR" in words
    assert [w.removeprefix("INFO ") for w in words if w.startswith("INFO")] == (
        done.stdout.splitlines()
    )


def test_gpu_file_changes_the_gpus_at_run_time(lab: HogLab) -> None:
    gate, later = Gate(lab.folder), Gate(lab.folder, "later")
    lab.write("0  # the first", name="gpus")
    lab.write(gate.wait, later.wait, later.wait, "true")
    run = lab.popen("--job_file", "jobs.txt", "--gpu_file", "gpus")
    gate.wait_for()
    lab.write("1,1", name="gpus")
    later.wait_for(2)
    gate.open()
    assert run.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] != "(GPU 0): exiting\n":
        lines.append(run.stdout.readline())
    assert lines.count("Worker 1 starting\n") == 2
    assert "job 1 completed\n" in lines
    later.open()
    out, _ = run.communicate()
    assert run.returncode == 0
    assert out.count("(GPU 1): exiting\n") == 2 and "(GPU 0)" not in out
    assert "ran on gpu: 1\n" in lab.read("job_4", "INFO")


def test_empty_gpu_file_pauses_and_an_invalid_one_is_ignored(lab: HogLab) -> None:
    lab.write("", name="gpus")
    lab.write("echo $CUDA_VISIBLE_DEVICES")
    run = lab.popen("--job_file", "jobs.txt", "--gpu_file", "gpus")
    assert run.stdout is not None and run.stderr is not None
    assert run.stdout.readline().startswith("(MAIN): Starting at")
    lab.write("what", name="gpus")
    assert run.stderr.readline() == "the GPU file is ignored: `what` is not a GPU ID\n"
    lab.write("5", name="gpus")
    run.communicate()
    assert run.returncode == 0
    assert lab.read("job_1", "job_1.OUT") == "5\n"


def test_workers_print_when_they_start_and_exit() -> None:
    lines: list[str] = []
    workers = Workers(lines.append)
    workers.use(["0", "1", "1"], Counter())
    assert lines == ["Worker 0 starting", "Worker 1 starting", "Worker 1 starting"]
    lines.clear()
    workers.use(["1"], Counter({"1": 2}))
    assert lines == ["(GPU 0): exiting"]
    workers.freed("1")
    assert lines == ["(GPU 0): exiting", "(GPU 1): exiting"]
    workers.freed("1")
    assert len(lines) == 2
    workers.use([], Counter({"1": 1}))
    workers.use(["1"], Counter({"1": 1}))
    assert len(lines) == 2, "the worker was added again before its job ended"


def test_hooks_run_before_and_after_each_job(lab: HogLab) -> None:
    lab.write("echo job >> $HOG_DIR/steps", "exit 4")
    done = lab.run(
        "--job_file", "jobs.txt", "--gpus", "6",
        "--pre_hook", "echo pre $HOG_JOB $HOG_NAME $CUDA_VISIBLE_DEVICES | tee -a $HOG_DIR/steps",
        "--post_hook", "echo post $HOG_STATUS $HOG_EXIT_CODE $HOG_GPU $HOG_COMMAND; "
                       "echo post >> $HOG_DIR/steps",
    )  # fmt: skip
    assert done.returncode == 1
    assert lab.read("job_1", "steps").splitlines() == ["pre 1 job_1 6", "job", "post"]
    assert lab.read("job_1", "HOOKS") == (
        "pre 1 job_1 6\npost SUCCESS 0 6 echo job >> $HOG_DIR/steps\n"
    )
    assert lab.read("job_2", "HOOKS").endswith("post FAILURE 4 6 exit 4\n")
    assert lab.read("job_1", "job_1.OUT") == ""
    assert "command: exit 4\n" in lab.read("job_2", "INFO")


def test_job_is_not_run_if_its_pre_hook_fails(lab: HogLab) -> None:
    lab.write("touch ran")
    words = ("--job_file", "jobs.txt", "--gpus", "0", "--pre_hook", "echo no; false")
    assert lab.run(*words).returncode == 1
    assert not (lab.folder / "ran").exists()
    assert lab.read("job_1", "HOOKS") == "no\n"
    assert "job_1/FAILURE" in lab.tree()
