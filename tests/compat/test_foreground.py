"""The foreground runs that all compatible commands share: slots, sources of jobs, callbacks."""

from __future__ import annotations

import doctest
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.compat.foreground import gpu_slots
from stoker.compat.foreground.gpu_slots import FIRST_FREED, LAST_FREED, LOWEST, SlotGpus
from stoker.compat.foreground.jobs import End, Summary
from stoker.compat.hog import options, run
from stoker.compat.simple_gpu_scheduler import hypersearch
from stoker.compat.simple_gpu_scheduler import run as scheduler_run
from stoker.engine.model import Request, RunningJob
from tests.compat.conftest import CompatLab

_PREAMBLE = """
import os, sys
from stoker.compat.foreground.foreground_run import ForegroundRun, Reporter
from stoker.compat.foreground.jobs import Job

class ListedJobs:
    descriptor = pid = None
    at_end = False

    def __init__(self, jobs):
        self._jobs = list(jobs)
    def read(self):
        self.at_end = True
        return self._jobs
    def close(self):
        pass

class Printer(Reporter):
    def starting(self, job, device):
        print("starting", job.key, device, flush=True)
    def ended(self, job, device, end):
        print("ended", job.key, device, end.returncode, end.cause, flush=True)
"""


@pytest.fixture
def lab(new_compat_lab: Callable[..., CompatLab]) -> CompatLab:
    """`lab.run(TEXT)` runs a Python program."""
    lab = new_compat_lab("simple_gpu_scheduler")
    lab.command = [sys.executable, "-c"]
    return lab


@pytest.fixture(params=["C", "en_US.ISO-8859-1"])
def other_locale(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The environment of a user whose locale is not UTF-8."""
    name = str(request.param)
    env = {"LC_ALL": name, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    if name == "C":
        return env
    folder = tmp_path / "locales"
    folder.mkdir()
    localedef = shutil.which("localedef")
    if localedef is not None:
        command = [localedef, "-f", "ISO-8859-1", "-i", "en_US", str(folder / name)]
        subprocess.run(command, capture_output=True)
    if not list(folder.iterdir()):
        pytest.skip("needs other locales")
    return {**env, "LOCPATH": str(folder)}


def output_lines(lab: CompatLab, text: str) -> list[str]:
    return lab.ok(_PREAMBLE + text).splitlines()


# -- slots -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [gpu_slots, hypersearch, scheduler_run, options, run])
def test_docstring_examples_are_correct(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def order(slots: SlotGpus) -> str:
    return "".join(device.visible for device in slots.in_order)


@pytest.mark.parametrize(
    ("rule", "first", "later"),
    [(LOWEST, "abc", "abc"), (FIRST_FREED, "abc", "bca"), (LAST_FREED, "cba", "acb")],
)
def test_free_slots_are_used_in_the_order_of_the_tool(rule: str, first: str, later: str) -> None:
    slots = SlotGpus("abc", rule)
    assert order(slots) == first
    for slot in (2, 0):  # c is freed, then a
        slots.attempt_ended(RunningJob(1, 1, Request(gpus=1), (slot,), 0.0), 1.0)
    assert order(slots) == later


def test_slots_can_be_replaced_while_jobs_run() -> None:
    slots = SlotGpus(["0", "1", "1"])
    slots.use(["1", "2"])
    assert [device.visible for device in slots.devices] == ["0", "1", "1", "2"]
    assert sorted(slots.states) == [0, 2]
    slots.use(["0", "1", "1"])
    assert sorted(slots.states) == [3]


# -- jobs ------------------------------------------------------------------------------------------


def test_reporter_is_called_before_a_job_starts_and_when_it_is_over(lab: CompatLab) -> None:
    text = 'ForegroundRun(["7"], ListedJobs([Job("kill -9 $$", key="a")]), Printer()).work()'
    assert output_lines(lab, text) == ["starting a 7", "ended a 7 -9 signal"]


def test_job_has_its_own_variables_and_arguments(lab: CompatLab) -> None:
    text = """
job = Job(("sh", "-c", "echo $X $CUDA_VISIBLE_DEVICES; cat"), env=(("X", "y z"),))
ForegroundRun(["0,1"], ListedJobs([job]), Reporter()).work()
"""
    assert output_lines(lab, text) == ["y z 0,1"]


@pytest.mark.parametrize(
    ("options", "out", "err", "files"),
    [
        ('stdout="o"', "", "", {"o": "1\n2\n"}),
        ('stdout="o", stderr="e"', "", "", {"o": "1\n", "e": "2\n"}),
        ('stderr="e"', "1\n", "", {"e": "2\n"}),
    ],
)
def test_output_goes_to_the_files_of_the_job(
    lab: CompatLab, options: str, out: str, err: str, files: dict[str, str]
) -> None:
    for name in files:
        (lab.folder / name).write_text("old\n")
    jobs = f'ListedJobs([Job("echo 1; echo 2 >&2", {options})])'
    done = lab.run(f'{_PREAMBLE}ForegroundRun(["0"], {jobs}, Reporter()).work()')
    assert (done.stdout, done.stderr) == (out, err)
    assert {name: (lab.folder / name).read_text() for name in files} == files


def test_start_failure_is_written_to_the_stderr_of_the_job(lab: CompatLab) -> None:
    text = """
jobs = [Job(("nosuch",), key=1), Job(("nosuch",), stdout="o", stderr="e", key=2)]
print(ForegroundRun(["0"], ListedJobs(jobs), Printer()).work().exit_code())
"""
    done = lab.run(_PREAMBLE + text)
    assert done.stderr == "/bin/sh: nosuch: command not found\n"
    assert done.stdout.splitlines()[:2] == [
        "starting 1 0",
        "ended 1 0 127 start_failed",
    ]
    assert done.stdout.splitlines()[-1] == "2"
    assert (lab.folder / "e").read_text() == "/bin/sh: nosuch: command not found\n"


def test_slots_of_a_running_run_can_be_replaced(lab: CompatLab) -> None:
    text = """
class Mover(Printer):
    def ended(self, job, device, end):
        run.use(["1", "1"])
run = ForegroundRun(["0"], ListedJobs(Job("true", key=n) for n in range(4)), Mover())
run.work()
"""
    places = [line.split()[2] for line in output_lines(lab, text) if line.startswith("starting")]
    assert places == ["0", "0", "1", "1"]  # the second job got its slot before `ended` was called


def test_exit_code_counts_failures_and_is_130_after_an_interrupt() -> None:
    assert Summary(1, 0, False).exit_code() == 0
    assert Summary(1, 3, False).exit_code() == 3
    assert Summary(1, 300, False).exit_code() == 101
    assert Summary(1, 3, False).exit_code(zero=True) == 0
    assert Summary(1, 3, True).exit_code(zero=True) == 130
    assert [End(0, None, "exit").is_good, End(0, None, "user").is_good] == [True, False]
    assert [End(3, None, "exit").returncode, End(None, 9, "signal").returncode] == [3, -9]
