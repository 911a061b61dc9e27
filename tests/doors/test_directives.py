"""Scripts that bring their options: #SBATCH and #stoker."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.cli.directives import read_script
from stoker.errors import UsageError
from tests.lab import Lab


def a_script(folder: Path, *lines: str, first: str = "#!/bin/bash") -> str:
    path = folder / "job.sh"
    path.write_text("\n".join((first, *lines, "echo ran with $# arguments: $@", "")))
    return str(path)


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("--job-name=train", ["--name", "train"]),
        ("-J train", ["--name", "train"]),
        ("-Jtrain", ["--name", "train"]),
        ("--time=02:00:00", ["--time-limit", "02:00:00"]),
        ("-t 1-12", ["--time-limit", "1-12:00:00"]),
        ("--time=1-12:30", ["--time-limit", "1-12:30:00"]),
        ("-t 90", ["--time-limit", "90"]),
        ("--gres=gpu:2", ["--gpus", "2"]),
        ("--gres=gpu:h200:2", ["--gpus", "2", "--gpu-model", "h200"]),
        ("--gres=gpu:h200", ["--gpus", "1", "--gpu-model", "h200"]),
        ("--gres=gpu", ["--gpus", "1"]),
        ("--gpus=4", ["--gpus", "4"]),
        ("-G a100:3", ["--gpus", "3", "--gpu-model", "a100"]),
        ("--output=out-%j.txt", ["--stdout", "out-%j.txt"]),
        ("--dependency=afterok:7:8,afterany:9",
         ["--after", "7:ok", "--after", "8:ok", "--after", "9:any"]),
        ("--signal=B:USR1@120", ["--signal", "B:USR1@120s"]),
        ("--requeue", ["--restartable"]),
        ("--export=ALL,LR=0.1", ["--env", "LR=0.1"]),
        ("--nice=5", ["--priority", "-5"]),
        ("--nodes=1", []),
        ("--hold --job-name=x # why not", ["--hold", "--name", "x"]),
    ],
)  # fmt: skip
def test_options_of_slurm_become_ours(tmp_path: Path, line: str, flags: list[str]) -> None:
    script = read_script([a_script(tmp_path, f"#SBATCH {line}", "#SBATCH --mem=8G")])
    assert script is not None
    assert script.flags == flags
    assert script.notices == ["--mem means nothing on one host and is passed over"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--nodes=2", "2 nodes are asked for"),
        ("--array=1-9", "an array of jobs"),
        ("--nonsense=1", "`--nonsense` is not among the options"),
        ("--job-name", "needs a value"),
        ("--dependency=singleton", "is not a dependency"),
        ("--job-name='x", "No closing quotation"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_line(
    tmp_path: Path, line: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_script([a_script(tmp_path, "", f"#SBATCH {line}")])
    assert "line 3 of" in caught.value.message


def test_what_stands_behind_the_first_command_is_a_comment(tmp_path: Path) -> None:
    assert read_script([a_script(tmp_path, "cd /", "#SBATCH --nodes=9")]) is None


def test_a_script_runs_with_its_own_options_and_the_command_line_wins(lab: Lab) -> None:
    path = a_script(
        lab.folder, "#SBATCH --job-name=inside", "#SBATCH -o out-%j.txt", "#stoker --retries 2"
    )
    job = int(lab.ok("submit", "-q", "--name", "outside", path, "a b", "c"))
    assert lab.wait(job) == 0
    facts = lab.job(job)
    assert (facts["name"], facts["retries"]) == ("outside", 2)
    assert (lab.folder / f"out-{job}.txt").read_text() == "ran with 2 arguments: a b c\n"
    assert lab.log(job) == "ran with 2 arguments: a b c\n"


def test_programs_and_scripts_without_directives_are_left_alone(lab: Lab, tmp_path: Path) -> None:
    assert read_script(["/bin/sh"]) is None
    plain = a_script(lab.folder)
    Path(plain).chmod(0o755)
    job = lab.submit(plain)
    assert lab.wait(job) == 0
    assert lab.log(job) == "ran with 0 arguments:\n"
