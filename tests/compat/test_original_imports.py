"""Modules of the other tools under their own names, for `python -m` and `import`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def python(lab: Lab, *words: str, input: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=lab.env, cwd=lab.folder, input=input, text=True,
        capture_output=True,
    )  # fmt: skip


@pytest.mark.parametrize("module", ["scheduler", "command_line"])
def test_module_of_simple_gpu_scheduler_runs_commands(lab: Lab, module: str) -> None:
    words = ["-m", f"simple_gpu_scheduler.{module}", "--gpus", "3"]
    done = python(lab, *words, input="echo on $CUDA_VISIBLE_DEVICES\nexit 1\n")
    assert done.stdout == (
        "Processing command `echo on $CUDA_VISIBLE_DEVICES` on gpu 3\non 3\n"
        "Processing command `exit 1` on gpu 3\n"
    )
    assert done.returncode == 1
    assert python(lab, "-m", f"simple_gpu_scheduler.{module}").returncode == 2


def test_gpu_manager_hands_out_the_last_id_first_and_waits_for_a_free_one(lab: Lab) -> None:
    code = """
import simple_gpu_scheduler
from simple_gpu_scheduler.scheduler import GPUManager, run_command_with_gpu
manager = GPUManager(["0", "1,2"])
first = manager.get_gpu()
print(first, first.nr, flush=True)
run_command_with_gpu("echo $CUDA_VISIBLE_DEVICES", first)
names = {str(manager.get_gpu()), str(manager.get_gpu())}  # one of them comes back from the command
print(sorted(names))
"""
    done = python(lab, "-c", code)
    assert done.stdout == (
        "1,2 1,2\nProcessing command `echo $CUDA_VISIBLE_DEVICES` on gpu 1,2\n1,2\n['0', '1,2']\n"
    ), done.stderr


def test_commands_from_stdin_are_all_done_when_reading_them_returns(lab: Lab) -> None:
    code = """
from simple_gpu_scheduler.command_line import GPUManager, read_commands_and_run
read_commands_and_run(GPUManager(["0"]))
print("end", flush=True)
"""
    done = python(lab, "-c", code, input="echo a  \necho b")
    assert done.stdout.splitlines() == [
        "Processing command `echo a` on gpu 0", "a",
        "Processing command `echo b` on gpu 0", "b", "end",
    ], done.stderr  # fmt: skip


def test_hypersearch_gives_the_commands_of_the_command_line(lab: Lab) -> None:
    code = """
import random, sys
from simple_gpu_scheduler.hypersearch import HyperparameterSearch, build_hyperparameter_search
random.seed(1)
search = HyperparameterSearch("{a}{b}", "shuffled_grid", 4, {"a": "123", "b": "xyz"})
print(*search.get_commands())
print(*HyperparameterSearch("{a}", "grid", None, {"a": [1, 2]}).get_commands())
sys.argv = "x {a}{b} --seed 1 --n-samples 2 -p a 1 2 3 -p b x y z".split()
print(*build_hyperparameter_search().get_commands())
"""
    done = python(lab, "-c", code)
    assert done.stdout == "2z 3x 3y 2y\n1 2\n2z 3x\n", done.stderr
    words = ["{a}", "--sampling-mode", "grid", "-p", "a", "1", "2"]
    code = "from simple_gpu_scheduler.hypersearch import generate_commands; generate_commands()"
    assert python(lab, "-c", code, *words).stdout == "1\n2\n"


def test_hog_is_a_decorator_a_function_and_a_module(lab: Lab) -> None:
    (lab.folder / "jobs.txt").write_text("echo from $CUDA_VISIBLE_DEVICES\n")
    done = python(lab, "-m", "hog", "--job_file", "jobs.txt", "--gpus", "5")
    assert done.returncode == 0, done.stderr
    assert (lab.folder / "hog_run" / "job_1" / "job_1.OUT").read_text() == "from 5\n"
    code = """
from hog import hog, run_jobs
@hog(gpus="0,1", output_dir="decorated")
def jobs():
    yield "true"
    yield "false"
print("failed", jobs(), run_jobs(["false"], [0], output_dir="called"))
"""
    done = python(lab, "-c", code)
    assert done.stdout.endswith("failed 1 1\n"), done.stderr
    assert (lab.folder / "decorated" / "job_2" / "FAILURE").exists()
