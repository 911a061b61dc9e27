"""`schedule`: the contract of iterait/scheduler, and its defects fixed."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.compat.schedule.options import Call, parse
from stoker.compat.schedule.state_file import Entry, dump, fresh, load, status_text
from stoker.compat.schedule.task import number_in
from stoker.compat.schedule.tickets import GpuRequest, left_over
from stoker.engine.devices.leases.any_gpu_lease import AnyGpuLease
from stoker.engine.devices.leases.holders import DeviceClaim
from stoker.engine.devices.leases.lease import holders, try_take
from stoker.errors import UsageError
from tests.cli.helpers import refused
from tests.engine.gpus.host import USER, GpuHost
from tests.fake_nvml import GIB
from tests.helpers import Gate, is_alive
from tests.lab import Lab, wait_until

START = re.compile(
    r"GPU: (cuda[\d,cuda]+)\nSCH PID: (\d+)\nTASK PID: (\d+)\nSCH PGID: \d+\nTASK PGID: (\d+)\n"
)
FREE_4 = "Free GPU:\n---------\nGPU 0\nGPU 1\nGPU 2\nGPU 3\n"


class ScheduleLab(Lab):
    """A lab for `schedule` with its own state file and leases; `close` kills what still runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            folder,
            STOKER_SCHEDULE_FILE=str(folder / "info"),
            STOKER_LEASE_DIR=str(folder / "leases"),
            STOKER_SCHEDULE_KILL_DELAY="0",
        )
        self.command = [sys.executable, "-m", "stoker.compat.schedule.main"]
        self._started: list[subprocess.Popen[str]] = []

    def popen(self, *words: str, **kwargs: Any) -> subprocess.Popen[str]:
        self._started.append(super().popen(*words, **kwargs))
        return self._started[-1]

    def close(self) -> None:
        for run in self._started:
            run.kill()
            with run:  # closes its pipes
                pass
        super().close()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[ScheduleLab]:
    lab = ScheduleLab(tmp_path)
    yield lab
    lab.close()


def state(lab: Lab) -> dict[str, list[Any]]:
    content: dict[str, list[Any]] = json.loads((lab.folder / "info").read_text())
    return content


def start_task(lab: Lab, gate: Gate, *words: str, before: str = "", **kwargs: Any) -> tuple[
    subprocess.Popen[str], int
]:  # fmt: skip
    """Start a task that waits at the gate; returns the `schedule` process and the task PID."""
    already = len(gate.arrived())
    run = lab.popen(f"sh -c {json.dumps(before + gate.wait)}", *words, **kwargs)
    return run, gate.wait_for(already + 1)[-1]


def first_lines(run: subprocess.Popen[str], count: int = 5) -> list[str]:
    assert run.stdout is not None
    return [run.stdout.readline().rstrip("\n") for _ in range(count)]


def wait_for_exit(*pids: int) -> None:
    wait_until(lambda: not any(map(is_alive, pids)), what=f"the end of {pids}")


def wait_for_queue(lab: Lab, count: int) -> None:
    """Wait until the queue has `count` tickets."""
    tickets = Path(lab.env["STOKER_LEASE_DIR"])
    wait_until(lambda: len(list(tickets.glob("schedule.*"))) == count, what=f"{count} tickets")


# -- the command line ------------------------------------------------------------------------------


def test_readme_example_is_parsed_as_by_the_original() -> None:
    call = parse(["train.py foo --bar 5", "--forced_gpu", "2", "--verbose"])
    assert call == Call(task=("train.py", "foo", "--bar", "5"), force=(2,), is_verbose=True)


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (["-i", "5", "3", "4"], Call(init=(5, 3, 4))),
        (["-i4", "-s"], Call(init=(4,), status=True)),
        (["-rg", "0", "2"], Call(release=(0, 2))),
        (["-s"], Call(status=True)),
        (["a b", "-pg", "1", "-gc", "2"], Call(task=("a", "b"), prefer=(1,), needs=2)),
        (["a", "-fg=1", "--out=x", "-e", "y"], Call(task=("a",), force=(1,), out="x", err="y")),
        (["a", "-o"], Call(task=("a",))),
        (["-v", "a", "--forced", "3"], Call(task=("a",), is_verbose=True, force=(3,))),
        (["a 'b c'\nd\n\n__num__"], Call(task=("a", "b c", "d", "__num__"))),
        ([""], Call()),
        (["  \n"], Call()),
        (["a", "-fg", "-1"], Call(task=("a",), force=(-1,))),
        (["-sv"], Call(status=True, is_verbose=True)),
        (["a b", "-vo", "x"], Call(task=("a", "b"), is_verbose=True, out="x")),
        (["a", "-vo", "x"], Call(task=("a",), is_verbose=True, out="x")),
        (["a b", "-svox"], Call(task=("a", "b"), status=True, is_verbose=True, out="x")),
        (["a", "-o", "-"], Call(task=("a",))),
        (["--rel", "1", "2"], Call(release=(1, 2))),
        (["--re", "1"], Call(release=(1,))),
        (["a b", "--pref", "2"], Call(task=("a", "b"), prefer=(2,))),
        (["a b", "--for", "2"], Call(task=("a", "b"), force=(2,))),
        (["a b", "--e", "x"], Call(task=("a", "b"), err="x")),  # --exit-zero is not in the original
    ],
)
def test_v1_flags_are_parsed(words: list[str], call: Call) -> None:
    assert parse(words) == call


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (["task.py", "--your_arg", "value"], Call(task=("task.py", "--your_arg", "value"))),
        (["-n", "2", "training.py"], Call(task=("training.py",), needs=2, is_v2=True)),
        (
            ["-f", "[1,3]", "training.py"],
            Call(task=("training.py",), force=(1, 3), needs=2, force_text="[1,3]", is_v2=True),
        ),
        (["-p", "[2, 0]", "t"], Call(task=("t",), prefer=(2, 0), is_v2=True)),
        (["-p", "2", "t"], Call(task=("t",), prefer=(2,), is_v2=True)),
        (["-r", "0", "1"], Call(release=(0, 1), is_v2=True)),
        (["--cx", "t", "x y"], Call(task=("t", "x y"), is_cx=True, is_v2=True)),
        (["-n", "2", "--", "t", "-s", "-v"], Call(task=("t", "-s", "-v"), needs=2, is_v2=True)),
        (["t", "-n", "3"], Call(task=("t",), needs=3, is_v2=True)),
        (
            ["--for", "[1,3]", "a b"],
            Call(task=("a", "b"), force=(1, 3), force_text="[1,3]", needs=2, is_v2=True),
        ),
        (["--pref", "[1,3]", "a b"], Call(task=("a", "b"), prefer=(1, 3), is_v2=True)),
        (["a", "-vx"], Call(task=("a", "-vx"))),
        (["-n", "2", "-v", "t"], Call(task=("t",), needs=2, is_verbose=True)),
    ],
)
def test_v2_flags_are_parsed(words: list[str], call: Call) -> None:
    assert parse(words) == call


@pytest.mark.parametrize(
    "words",
    [
        ["sleep 1", "sleep 2"],
        ["--nope"],
        ["a b", "--nope"],
        ["-fg"],
        ["a", "-fg", "x"],
        ["a", "-gc", "0"],
        ["a", "-gc", "-2"],
        ["-i"],
        ["-i", "x"],
        ["it's"],
        ["a", "-f", "[1,x]"],
        ["-s=1"],
        ["-o", "swallowed"],
        ["-sx"],
    ],
)
def test_invalid_command_lines_raise_usage_errors(words: list[str]) -> None:
    with pytest.raises(UsageError):
        parse(words)


def test_usage_error_is_one_sentence_and_exits_with_2(lab: Lab) -> None:
    done = lab.run("sleep 1", "sleep 2")
    refused(done, 2, "`sleep 2` is a second task",
            "schedule runs one task; put all of its words in one pair of quotes")  # fmt: skip
    swallowed = lab.run("-o", "true")
    assert (swallowed.returncode, swallowed.stdout) == (2, "")
    assert swallowed.stderr.endswith("hint: schedule 'TASK' -o FILE\n")
    assert not (lab.folder / "true").exists()


def test_readme_example_runs(lab: ScheduleLab) -> None:
    """/path/to/scheduler.py "train.py foo --bar 5" --forced_gpu 2 --verbose"""
    path = lab.folder / "path"
    path.mkdir()
    for name, text in (
        ("scheduler.py", f'exec {sys.executable} -m stoker.compat.schedule.main "$@"'),
        ("train.py", 'echo "$GPU trains with $*"'),
    ):
        (path / name).write_text(f"#!/bin/sh\n{text}\n")
        (path / name).chmod(0o755)
    lab.command = [str(path / "scheduler.py")]
    out = lab.ok("train.py foo --bar 5", "--forced_gpu", "2", "--verbose",
                  PATH=f"{path}:{os.environ['PATH']}")  # fmt: skip
    assert out.startswith("GPU: cuda2\n")
    assert "\ncuda2 trains with foo --bar 5\n\ntask: ['train.py', 'foo', '--bar', '5']\n" in out


def test_port_placeholder_depends_on_the_gpu() -> None:
    assert number_in(("a", "__num__", "__num__x", "-p=__num__"), 3) == (
        "a", "3900", "__num__x", "-p=__num__",
    )  # fmt: skip


# -- the state file --------------------------------------------------------------------------------


def test_any_call_creates_the_state_file_with_four_gpus(lab: Lab) -> None:
    assert lab.run("-h").stdout.startswith("usage: schedule [-h] [-gc GPU_COUNT]")
    column = "[\n" + ",\n".join(["        null"] * 4) + "\n    ]"
    avail = column.replace("null", "true")
    assert (lab.folder / "info").read_text() == (
        f'{{\n    "avail": {avail},\n    "gpu_name": {column},\n    "task": {column},\n'
        f'    "task_pid": {column},\n    "task_start": {column},\n    "user": {column}\n}}'
    )


def test_all_users_can_write_the_state_file(lab: Lab) -> None:
    lab.popen("-s", umask=0o077).communicate()
    assert stat.S_IMODE((lab.folder / "info").stat().st_mode) == 0o666


def test_init_sets_the_number_of_gpus_and_the_unavailable_ones(lab: Lab) -> None:
    assert lab.ok("-i", "3", "1", "9", "-s") == (
        "Currently used GPU:\n-------------------\nGPU: None\nUser: None\nTask: None\n"
        "Task PID: None\nStarted: None\n\nFree GPU:\n---------\nGPU 0\nGPU 2\n"
    )
    assert state(lab)["avail"] == [True, False, True]
    assert lab.ok("-rg", "1", "7", "-s").startswith("Free GPU:\n---------\nGPU 0\nGPU 1\nGPU 2\n")
    for none in ("0", "-2"):
        assert lab.ok("-i", none, "-s") == "No GPU available.\n"
        assert state(lab) == {key: [] for key in Entry._fields}


def test_init_release_status_and_task_happen_in_this_order(lab: Lab) -> None:
    out = lab.ok("echo task", "-s", "-rg", "1", "-i", "2", "0", "1")
    assert out.startswith("Currently used GPU:")
    assert "Free GPU:\n---------\nGPU 1\nGPU: cuda1\n" in out
    assert out.endswith("task\n")


def test_running_task_is_shown_in_the_file_and_the_status(lab: Lab) -> None:
    gate = Gate(lab.folder)
    run, _ = start_task(lab, gate, "-fg", "2")
    lines = first_lines(run)
    pid = int(lines[2].removeprefix("TASK PID: "))
    now = state(lab)
    assert now["avail"] == [True, True, False, True]
    assert now["gpu_name"] == [None, None, "cuda2", None]
    assert now["task"][2][:2] == ["sh", "-c"]
    assert now["task_pid"][2] == pid
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", now["task_start"][2])
    status = lab.ok("-s")
    assert status == (
        f"Currently used GPU:\n-------------------\nGPU: cuda2\nUser: {now['user'][2]}\n"
        f"Task: {now['task'][2]}\nTask PID: {pid}\nStarted: {now['task_start'][2]}\n\n"
        "Free GPU:\n---------\nGPU 0\nGPU 1\nGPU 3\n"
    )
    gate.open()
    run.communicate()
    assert state(lab)["avail"] == [True] * 4
    assert lab.ok("-s") == FREE_4


@pytest.mark.parametrize("text", ["", "{", "[]", '{"avail": 3}', '{"avail": [true]}', "\0\xff"])
def test_damaged_state_file_is_reset(lab: Lab, text: str) -> None:
    (lab.folder / "info").write_bytes(text.encode("latin-1"))
    done = lab.run("echo ran")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "ran")
    assert len(state(lab)["user"]) == (1 if text == '{"avail": [true]}' else 4)


def test_values_of_wrong_types_in_the_state_file_are_ignored() -> None:
    text = '{"avail": [false, "x"], "task": [1, ["a", 2]], "task_pid": [true], "user": {}}'
    assert load(text) == [Entry(False), Entry(True, task=["a", "2"])]
    assert load(dump(fresh(2, (1,)))) == [Entry(), Entry(False)]
    assert status_text([]) == "No GPU available.\n"


def test_leases_override_the_state_file(lab: Lab) -> None:
    """Entries without a lease are dropped; a leased GPU stays in use."""
    lab.ok("-i", "1")
    wrong = state(lab)
    wrong |= {"avail": [False], "task": [["x"]], "task_pid": [os.getpid()], "user": ["me"]}
    (lab.folder / "info").write_text(json.dumps(wrong))
    assert lab.ok("echo ran").endswith("ran\n")
    assert lab.ok("-s") == "Free GPU:\n---------\nGPU 0\n"
    gate = Gate(lab.folder)
    run, _ = start_task(lab, gate)
    first_lines(run)
    (lab.folder / "info").unlink()
    lab.ok("-i", "1")  # the running task keeps its GPU
    assert state(lab)["avail"] == [False]
    (lab.folder / "info").write_text(json.dumps(wrong | {"avail": [True]}))
    second = lab.popen("echo second")
    wait_for_queue(lab, 1)
    released = lab.run("-rg", "0", "-s")
    assert released.stdout.startswith("Currently used GPU:")
    assert released.stderr.startswith("GPU 0 stays in use until process ")
    gate.open()
    run.communicate()
    assert second.communicate()[0].endswith("second\n")


def test_symlink_at_the_state_file_path_is_not_followed(lab: Lab) -> None:
    (lab.folder / "victim").write_text("precious")
    (lab.folder / "info").symlink_to(lab.folder / "victim")
    assert lab.ok("echo ran").endswith("ran\n")
    assert (lab.folder / "victim").read_text() == "precious"
    refused(lab.run("-i", "2"), 77, f"cannot write the state file `{lab.folder}/info`",
            f"ask its owner to run: chmod 666 {lab.folder}/info")  # fmt: skip


# -- the task --------------------------------------------------------------------------------------


def test_start_of_a_task_prints_the_lines_of_the_original(lab: Lab) -> None:
    run = lab.popen("sh -c 'echo $GPU $CUDA_VISIBLE_DEVICES $$'", "-pg", "3")
    out, err = run.communicate()
    match = START.match(out)
    assert match is not None and (run.returncode, err) == (0, "")
    gpu, schedule_pid, pid, group = match.groups()
    assert (gpu, int(schedule_pid), pid) == ("cuda3", run.pid, group)
    assert out[match.end() :] == f"cuda3 3 {pid}\n"


def test_task_has_its_own_session_no_stdin_and_ignores_sigint(lab: Lab) -> None:
    code = (
        "import os, signal, sys; print(os.getsid(0) == os.getpid(), "
        "signal.getsignal(signal.SIGINT) == signal.SIG_IGN, "
        "signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, sys.stdin.read() == '')"
    )
    out = lab.ok("--", sys.executable, "-c", code, input="not for the task\n")
    assert out.splitlines()[-1] == "True True True True"


def test_task_takes_the_lowest_free_gpu_unless_another_is_preferred(lab: Lab) -> None:
    gate = Gate(lab.folder)
    start_task(lab, gate)
    assert lab.ok("true").startswith("GPU: cuda1\n")
    assert lab.ok("true", "-pg", "2").startswith("GPU: cuda2\n")
    assert lab.ok("true", "-pg", "0").startswith("GPU: cuda1\n")
    assert lab.ok("true", "-p", "[0,3,2]").startswith("GPU: 3\n")
    assert lab.ok("true", "-pg", "99").startswith("GPU: cuda1\n")
    gate.open()


def test_task_waits_for_its_forced_gpu_while_others_are_free(lab: Lab) -> None:
    gate = Gate(lab.folder)
    run, _ = start_task(lab, gate, "-fg", "1")
    first_lines(run)
    second = lab.popen("true", "-fg", "1")
    assert first_lines(second, 1) == [f"Scheduler (PID: {second.pid}) is waiting for GPU 1."]
    third = lab.popen("true", "-f", "[1]")
    assert first_lines(third, 1) == [f"Scheduler (PID: {third.pid}) is waiting for GPU(s) [1]."]
    assert lab.ok("true").startswith("GPU: cuda0\n")  # not blocked by them
    gate.open()
    assert second.communicate()[0].startswith("GPU: cuda1\n")
    assert third.communicate()[0].startswith("GPU: 1\n")


def test_request_that_can_never_be_met_is_an_error(lab: Lab) -> None:
    hint = "schedule manages 4 GPUs; change that with: schedule -i N"
    refused(lab.run("true", "-fg", "99"), 2, "there is no GPU 99", hint)
    refused(lab.run("true", "-gc", "5"), 2, "the task needs 5 GPUs, but there are 4", hint)
    lab.ok("-i", "0")
    assert lab.run("true").stderr.startswith("error: there is no GPU\n")


def test_gpu_count_gives_that_many_gpus(lab: Lab) -> None:
    out = lab.ok("sh -c 'echo $GPU $CUDA_VISIBLE_DEVICES'", "-gc", "2")
    assert out.startswith("GPU: cuda0,cuda1\n") and out.endswith("cuda0,cuda1 0,1\n")
    out = lab.ok("-f", "[1,3]", "--cx", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $0")
    assert "\n1,3 model.n_gpus=2\n" in out
    out = lab.ok("-n", "2", "-f", "2", "printenv", "CUDA_VISIBLE_DEVICES")
    assert out.startswith("GPU: 2,0\n") and "\n2,0\n" in out


def test_later_small_task_does_not_overtake_a_large_one(lab: Lab) -> None:
    gate = Gate(lab.folder)
    run, _ = start_task(lab, gate, "-fg", "2")
    large = lab.popen("echo large", "-gc", "4")
    wait_for_queue(lab, 1)
    small = lab.popen("echo small")
    wait_for_queue(lab, 2)  # three GPUs are free, but the large task came first
    gate.open()
    run.communicate()
    assert large.communicate()[0].startswith("GPU: cuda0,cuda1,cuda2,cuda3\n")
    assert small.communicate()[0].endswith("small\n")


def test_output_goes_to_files_and_verbose_prints_a_summary(lab: Lab) -> None:
    (lab.folder / "out").write_text("old\n" * 9)
    task = "sh -c 'echo out __num__; echo err >&2'"
    out = lab.ok(task, "-o", "out", "-e", "err", "-v", "-fg", "1")
    match = START.match(out)
    assert match is not None
    date = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    words = re.escape("['sh', '-c', 'echo out __num__; echo err >&2']")
    assert re.fullmatch(
        rf"\ntask: {words}\nstdout: out\nstderr: err\nstart: {date}\nend: {date}\n"
        r"total time: 0:0:\d\n\n",
        out[match.end() :],
    )
    assert (lab.folder / "out").read_text() == "out __num__\n"
    assert (lab.folder / "err").read_text() == "err\n"
    plain = lab.ok("echo __num__ x__num__", "-fg", "2", "-v", "-o")
    assert "\n3800 x__num__\n" in plain
    assert "\nstdout: <stdout>\nstderr: <stderr>\n" in plain


@pytest.mark.parametrize(
    ("words", "out", "err", "file"),
    [
        (["-o", "-"], "out\n", "err\n", None),
        (["-e", "-"], "out\nerr\n", "", None),
        (["-o", "x y", "-e", "-"], "err\n", "", "out\n"),
    ],
)
def test_minus_means_the_stdout_of_schedule_instead_of_a_file(
    lab: Lab, words: list[str], out: str, err: str, file: str | None
) -> None:
    if file is not None:
        (lab.folder / "x y").write_text("old\n" * 9)
    done = lab.run("sh -c 'echo out; echo err >&2'", *words)
    match = START.match(done.stdout)
    assert match is not None
    assert (done.stdout[match.end() :], done.stderr) == (out, err)
    assert file is None or (lab.folder / "x y").read_text() == file
    assert not (lab.folder / "-").exists()


def test_output_file_with_percent_j_keeps_its_name(lab: Lab) -> None:
    lab.ok("sh -c 'echo out; echo err >&2'", "-o", "out-%j", "-e", "err-%j")
    assert (lab.folder / "out-%j").read_text() == "out\n"
    assert (lab.folder / "err-%j").read_text() == "err\n"


def test_task_runs_without_a_shell(lab: Lab) -> None:
    assert lab.ok("echo '$HOME  x' ; *\n\n y").endswith("$HOME  x ; * y\n")


def test_empty_task_does_nothing(lab: Lab) -> None:
    assert (lab.ok(""), lab.ok(" \n ")) == ("", "")


def test_exit_code_is_that_of_the_task_unless_exit_zero_is_set(lab: Lab) -> None:
    assert lab.run("sh -c 'exit 7'").returncode == 7
    assert lab.run("sh -c 'kill -9 $$'").returncode == 137
    assert lab.run("sh -c 'exit 7'", "--exit-zero").returncode == 0
    assert lab.run("sh -c 'exit 7'", STOKER_COMPAT_EXIT_ZERO="1").returncode == 0


def test_missing_program_exits_with_1_at_once(lab: Lab) -> None:
    refused(lab.run("no-such-program x", "-o", "out"), 1,
            "the program `no-such-program` was not found",
            "tasks run without a shell: use a path or the name of a program on PATH")  # fmt: skip
    (lab.folder / "data").touch()
    assert lab.run("./data").returncode == 1
    assert not (lab.folder / "out").exists()
    assert lab.ok("-s") == FREE_4


def test_task_runs_without_a_login_terminal(lab: Lab) -> None:
    run = lab.popen("echo ran", start_new_session=True, stdin=subprocess.DEVNULL)
    assert run.communicate()[0].endswith("ran\n")
    assert run.returncode == 0


# -- signals ---------------------------------------------------------------------------------------


def test_ctrl_c_warns_then_terminates_then_kills(lab: Lab) -> None:
    """The GPU is released when the task has exited, not when SIGTERM was sent."""
    gate = Gate(lab.folder)
    run, pid = start_task(lab, gate, "-fg", "0", before="trap 'echo got TERM' TERM; ")
    first_lines(run)
    run.send_signal(signal.SIGINT)
    assert first_lines(run, 2) == ["", f"Next Ctrl-C terminate the task (PGID: {pid})."]
    assert is_alive(pid)
    run.send_signal(signal.SIGINT)
    printed = first_lines(run, 3)
    assert sorted(printed) == sorted(["", f"The task (PGID: {pid}) was terminated.", "got TERM"])
    assert is_alive(pid) and state(lab)["avail"][0] is False
    next_one = lab.popen("echo next", "-fg", "0")
    wait_for_queue(lab, 1)
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate()
    assert out == f"\nThe task (PGID: {pid}) was killed.\n"
    assert run.returncode == 137
    wait_for_exit(pid)
    assert next_one.communicate()[0].endswith("next\n")


def test_third_ctrl_c_kills_only_after_the_kill_delay(lab: Lab) -> None:
    gate = Gate(lab.folder)
    run, pid = start_task(lab, gate, before="trap 'echo got TERM' TERM; ",
                     env={"STOKER_SCHEDULE_KILL_DELAY": "600"})  # fmt: skip
    first_lines(run)
    for expected in (2, 3):
        run.send_signal(signal.SIGINT)
        first_lines(run, expected)
    run.send_signal(signal.SIGINT)
    assert lab.ok("-s").startswith("Currently used GPU:")  # by now the signal was handled
    assert is_alive(pid)
    gate.open()
    assert run.communicate()[0] == ""


def test_second_ctrl_c_ends_a_task_that_handles_sigterm(lab: Lab) -> None:
    gate = Gate(lab.folder)
    run, pid = start_task(lab, gate)
    first_lines(run)
    run.send_signal(signal.SIGINT)
    first_lines(run, 2)
    run.send_signal(signal.SIGINT)
    run.communicate()
    assert run.returncode == 128 + signal.SIGTERM
    wait_for_exit(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_task_outlives_schedule_and_no_gpu_stays_busy(lab: Lab, number: signal.Signals) -> None:
    gate, hidden = Gate(lab.folder), Gate(lab.folder, "hidden")
    (lab.folder / "hide").write_text(hidden.wait)
    run, pid = start_task(lab, gate, before="setsid sh hide & ")
    pids = [pid, *hidden.wait_for()]
    first_lines(run)
    run.send_signal(number)
    run.communicate()
    assert run.returncode == (-9 if number == signal.SIGKILL else 128 + signal.SIGTERM)
    wait_for_exit(*pids)
    wait_until(lambda: state(lab)["avail"] == [True] * 4)
    assert lab.ok("-s") == FREE_4
    assert lab.ok("true").startswith("GPU: cuda0\n")


def test_waiting_task_runs_even_if_its_messages_cannot_be_written(lab: Lab) -> None:
    lab.ok("-i", "1")
    gate = Gate(lab.folder)
    run, _ = start_task(lab, gate)
    with open("/dev/full", "w") as full:
        second = lab.popen("sh -c 'echo >> ran'", stdout=full, stderr=full)
    wait_for_queue(lab, 1)
    third = lab.popen("true")  # it is behind the second task
    assert third.stderr is not None
    assert third.stderr.readline() == "waiting for a free GPU, behind 1 other\n"
    gate.open()
    run.communicate()
    assert second.wait() == 0
    assert (lab.folder / "ran").exists()


def test_task_runs_in_a_removed_working_folder(lab: Lab) -> None:
    line = 'mkdir gone; cd gone; rmdir ../gone; exec "$@"'
    lab.command = [
        "sh",
        "-c",
        line,
        "sh",
        sys.executable,
        "-P",
        "-m",
        "stoker.compat.schedule.main",
    ]
    done = lab.run("echo a")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "a")
    assert "Traceback" not in done.stderr  # some shells print a warning of their own


def test_ctrl_c_during_imports_prints_nothing(lab: Lab) -> None:
    (lab.folder / "json.py").write_text("import os\nos.kill(os.getpid(), 2)\nfor n in (): pass\n")
    done = lab.run("echo a", PYTHONPATH=str(lab.folder))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_nohup_protects_a_task_from_sighup(lab: Lab) -> None:
    gate = Gate(lab.folder)
    run, _ = start_task(lab, gate, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    first_lines(run)
    run.send_signal(signal.SIGHUP)
    gate.open()
    run.communicate()
    assert run.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGKILL])
def test_signal_removes_a_waiting_process_from_the_queue(lab: Lab, number: signal.Signals) -> None:
    lab.ok("-i", "1")
    gate = Gate(lab.folder)
    run, _ = start_task(lab, gate)
    second = lab.popen("echo second")
    assert second.stderr is not None
    assert second.stderr.readline() == "waiting for a free GPU\n"
    third = lab.popen("echo third")
    assert third.stderr is not None
    assert third.stderr.readline() == "waiting for a free GPU, behind 1 other\n"
    second.send_signal(number)
    assert second.communicate() == ("", "")
    assert second.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    gate.open()
    run.communicate()
    assert third.communicate()[0].endswith("third\n")


# -- first come, first served ----------------------------------------------------------------------


def test_tasks_run_first_come_first_served(lab: Lab) -> None:
    lab.ok("-i", "1")
    gate = Gate(lab.folder)
    start_task(lab, gate)
    runs = []
    for number in range(5):
        runs.append(lab.popen(f"sh -c 'echo {number} >> order'"))
        wait_for_queue(lab, number + 1)
    gate.open()
    for run in runs:
        run.communicate()
    assert (lab.folder / "order").read_text().split() == ["0", "1", "2", "3", "4"]
    assert not list((lab.folder / "leases").glob("schedule.*"))


def test_stopped_process_does_not_block_the_queue(lab: Lab) -> None:
    lab.ok("-i", "1")
    gate = Gate(lab.folder)
    run, _ = start_task(lab, gate)
    stopped = lab.popen("echo stopped")
    wait_for_queue(lab, 1)
    stopped.send_signal(signal.SIGTSTP)
    stat = Path(f"/proc/{stopped.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", what="a stop")
    gate.open()
    run.communicate()
    assert lab.ok("echo ran").endswith("ran\n")
    stopped.send_signal(signal.SIGCONT)
    assert stopped.communicate()[0].endswith("stopped\n")


def test_gpus_that_no_request_ahead_needs_are_left_over() -> None:
    gpus = [0, 1, 2, 3]
    assert left_over(gpus, []) == gpus
    assert left_over(gpus, [GpuRequest(1)]) == []
    assert left_over(gpus, [GpuRequest(2, (0, 2)), GpuRequest(1, (3,))]) == [1]
    assert left_over(gpus, [GpuRequest(9)]) == gpus, "requests that cannot be met are ignored"
    assert left_over(gpus, [GpuRequest(2, (0, 9))]) == gpus


def test_released_gpu_is_given_to_a_waiting_task(lab: Lab) -> None:
    lab.ok("-i", "2", "0", "1")
    run = lab.popen("echo ran", "-fg", "1")
    assert run.stderr is not None
    assert run.stderr.readline() == "waiting for a free GPU\n"
    lab.ok("-rg", "1")
    assert run.communicate()[0].startswith("GPU: cuda1\n")


def test_lease_of_another_process_is_respected_and_shown(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_LEASE_DIR", lab.env["STOKER_LEASE_DIR"])
    lab.ok("-i", "1")
    lease = try_take([DeviceClaim("schedule-0", "", False, 0, None)])
    assert lease is not None
    run = lab.popen("echo ran")
    assert run.stderr is not None
    assert run.stderr.readline() == "waiting for a free GPU\n"
    assert f"\nTask PID: {os.getpid()}\n" in lab.ok("-s")
    lease.close()
    assert run.communicate()[0].endswith("ran\n")


# -- leases on any of several GPUs -----------------------------------------------------------------


@pytest.fixture
def claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], DeviceClaim]:
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path / "leases"))
    return lambda number: DeviceClaim(f"gpu-{number}", "", False, 0, None)


def test_first_free_gpus_are_leased(claims: Callable[[int], DeviceClaim]) -> None:
    taken = try_take([claims(1)])
    assert taken is not None
    waiter = AnyGpuLease(claims)
    found = waiter.try_take([1, 2, 0], 2)
    assert found is not None and found[1] == (2, 0)
    names = [holder.uuid for holder in holders([(f"gpu-{n}", "", False) for n in range(3)])]
    assert sorted(names) == ["gpu-0", "gpu-1", "gpu-2"]
    found[0].close()
    assert AnyGpuLease(claims).try_take([0, 1], 1, required=1) is not None
    taken.close()


def test_waiting_process_keeps_free_gpus_from_later_ones(
    claims: Callable[[int], DeviceClaim],
) -> None:
    busy = try_take([claims(0)])
    assert busy is not None
    first, later = AnyGpuLease(claims), AnyGpuLease(claims)
    assert first.try_take([0, 1], 2) is None
    assert try_take([claims(1)]) is None, "GPU 1 is free, but reserved"
    assert later.try_take([1], 1) is None
    busy.close()
    assert try_take([claims(0)]) is None, "the waiting process goes first"
    found = first.try_take([0, 1], 2)
    assert found is not None
    assert later.try_take([0, 1], 1) is None
    found[0].close()
    assert later.try_take([0, 1], 1) is not None


def test_two_processes_that_need_several_gpus_do_not_deadlock(
    claims: Callable[[int], DeviceClaim],
) -> None:
    busy = try_take([claims(2)])
    assert busy is not None
    one, other = AnyGpuLease(claims), AnyGpuLease(claims)
    assert one.try_take([0, 2], 2) is None
    assert other.try_take([2, 1, 0], 2) is None
    busy.close()
    found = one.try_take([0, 2], 2)
    assert found is not None
    found[0].close()
    assert other.try_take([2, 1, 0], 2) is not None


# -- GPUs of this host (the fake driver) -----------------------------------------------------------


@pytest.fixture
def on_gpus(host: GpuHost) -> Iterator[tuple[ScheduleLab, GpuHost]]:
    lab = ScheduleLab(host.folder)
    lab.env |= host.lab().env | {"STOKER_SCHEDULE_FILE": str(host.folder / "info")}
    yield lab, host
    lab.close()


def test_gpu_count_comes_from_the_driver(on_gpus: tuple[ScheduleLab, GpuHost]) -> None:
    lab, _ = on_gpus
    assert lab.ok("-s") == "Free GPU:\n---------\nGPU 0\nGPU 1\n"
    assert lab.ok("printenv CUDA_VISIBLE_DEVICES", "-gc", "2").endswith("\n0,1\n")


def test_schedule_and_stoker_run_respect_the_leases_of_each_other(
    on_gpus: tuple[ScheduleLab, GpuHost],
) -> None:
    schedule, host = on_gpus
    lab, gate, later = host.lab(), host.gate(), host.gate("later")
    other = lab.popen("run", "-q", "--devices", "0", gate.wait)
    gate.wait_for()
    assert schedule.ok("true").startswith("GPU: cuda1\n")
    status = schedule.ok("-s")
    assert f"\nTask PID: {other.pid}\n" in status and status.endswith("---------\nGPU 1\n")
    run = schedule.popen("-gc", "2", "--", "sh", "-c", later.wait)
    wait_for_queue(schedule, 1)
    gate.open()
    other.communicate()
    assert first_lines(run, 1) == ["GPU: cuda0,cuda1"]
    later.wait_for()
    waits = lab.popen("run", "-q", "--devices", "1", "echo at last")
    later.open()
    run.communicate()
    assert waits.communicate()[0] == "at last\n"


def test_schedule_and_hog_take_turns_on_a_gpu(on_gpus: tuple[ScheduleLab, GpuHost]) -> None:
    """A waiting `schedule` gets the GPU between two jobs of hog."""
    schedule, host = on_gpus
    lab, first, second = host.lab(), host.gate("first"), host.gate("second")
    (lab.folder / "jobs").write_text(f"{first.wait}\n{second.wait}\n")
    lab.command = [sys.executable, "-m", "stoker.compat.hog.main"]
    hog = lab.popen("--job_file", "jobs", "--gpus", "0")
    first.wait_for()
    run = schedule.popen("sh -c 'echo between'", "-fg", "0")
    assert first_lines(run, 1) == [f"Scheduler (PID: {run.pid}) is waiting for GPU 0."]
    first.open()
    assert run.communicate()[0].endswith("between\n")
    second.wait_for()
    second.open()
    hog.communicate()
    assert hog.returncode == 0


def test_gpu_that_another_process_uses_is_not_taken(
    on_gpus: tuple[ScheduleLab, GpuHost],
) -> None:
    lab, host = on_gpus
    pid = host.other_process(0, GIB)
    done = lab.run("true")
    assert done.stdout.startswith("GPU: cuda1\n")
    assert done.stderr == f"GPU 0 is not used while {USER} (pid {pid}) has 1.0 GiB\n"
    forced = lab.popen("true", "-fg", "0")
    assert forced.stderr is not None
    assert forced.stderr.readline().startswith("GPU 0 is not used while ")
    host.end_other_process(pid)
    assert "GPU: cuda0\n" in forced.communicate()[0]


def test_v2_flags_print_the_output_of_v2(lab: Lab) -> None:
    out = lab.ok("-n", "2", "--", "echo", "x y").splitlines()
    assert out[0] == "GPU: 0,1"
    assert [line.partition(":")[0] for line in out[1:5]] == [
        "SCH PID", "TASK PID", "SCH PGID", "TASK PGID",
    ]  # fmt: skip
    assert out[5:8] == ["x y", "", "task: ['echo', 'x y']"]
    assert [line.partition(":")[0] for line in out[8:]] == ["start", "end", "total time", ""]


def test_first_ctrl_c_ends_a_v2_task(lab: Lab) -> None:
    run = lab.popen("-n", "1", "--", "sleep", "1000")
    pid = int(first_lines(run, 5)[2].removeprefix("TASK PID: "))
    run.send_signal(signal.SIGINT)
    assert first_lines(run, 2) == ["", f"The task (PGID: {pid}) was terminated."]
    run.communicate()
    assert run.returncode == 128 + signal.SIGTERM
