"""Options in scripts: #SBATCH and #stoker."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.cli.script_options import read_script
from stoker.errors import UsageError
from stoker.text.slurm.slurm_options import SBATCH
from tests.cli.helpers import refused
from tests.lab import Lab

USER = pwd.getpwuid(os.getuid()).pw_name


def a_script(folder: Path, *lines: str, first: str = "#!/bin/bash", body: str = "") -> str:
    path = folder / "job.sh"
    body = body or "echo ran with $# arguments: $@"
    path.write_text("\n".join((first, *lines, body, "")))
    return str(path)


def output_of(lab: Lab, *lines: str, body: str, flags: tuple[str, ...] = ()) -> list[str]:
    """The lines that a script with these directives prints."""
    job = lab.submit(*flags, a_script(lab.folder, *lines, body=body))
    assert lab.wait(job) == 0, lab.log(job)
    return lab.log(job).splitlines()


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("--job-name=train", ["--name", "train"]),
        ("-J train", ["--name", "train"]),
        ("-Jtrain", ["--name", "train"]),
        ("--job=train", ["--name", "train"]),  # an abbreviation
        ("--time=02:00:00", ["--time-limit", "02:00:00"]),
        ("-t 1-12", ["--time-limit", "1-12:00:00"]),
        ("--time=1-12:30", ["--time-limit", "1-12:30:00"]),
        ("-t 90", ["--time-limit", "90"]),
        ("--time=UNLIMITED", []),
        ("--gres=gpu:2", ["--gpus", "2"]),
        ("--gres=gpu:h200:2", ["--gpus", "2", "--gpu-model", "h200"]),
        ("--gres=gpu:h200", ["--gpus", "1", "--gpu-model", "h200"]),
        ("--gres=gpu", ["--gpus", "1"]),
        ("--gpus=4", ["--gpus", "4"]),
        ("-G a100:3", ["--gpus", "3", "--gpu-model", "a100"]),
        ("--gpus-per-node=2", ["--gpus", "2"]),
        ("--gpus-per-task=2 --ntasks=3", ["--gpus", "6", "--cpus", "3"]),
        ("--ntasks-per-node=2 --gpus-per-task=1", ["--gpus", "2", "--cpus", "2"]),
        ("--tres-per-task=cpu=4,gres/gpu=2 -n2", ["--gpus", "4", "--cpus", "8"]),
        ("--cpus-per-task=4", ["--cpus", "4"]),
        ("-c 4 -n 2", ["--cpus", "8"]),
        ("--cpus-per-gpu=4 --gpus=2", ["--gpus", "2", "--cpus", "8"]),
        ("--ntasks=1", []),
        ("--mem=8G", ["--mem", str(8 << 30)]),
        ("--mem=4000", ["--mem", str(4000 << 20)]),
        ("--mem=0", []),
        ("--mem-per-cpu=2G -c 4", ["--cpus", "4", "--mem", str(8 << 30)]),
        ("--mem-per-cpu=2G", ["--mem", str(2 << 30)]),
        ("--mem-per-gpu=16G --gpus=2", ["--gpus", "2", "--mem", str(32 << 30)]),
        ("--gpus=4 --exclusive", ["--gpus", "4", "--exclusive"]),
        ("--output=out-%j.txt", ["--stdout", "out-%j.txt"]),
        ("--dependency=afterok:7:8,afterany:9",
         ["--after", "job:7:ok", "--after", "job:8:ok", "--after", "job:9:any"]),
        ("--dependency=afternotok:7_3", ["--after", "7_3:notok"]),
        ("--array=0-15:4%2", ["--array", "0-15:4%2"]),
        ("-a 1,3,5-7", ["--array", "1,3,5-7"]),
        ("--time=10 --signal=B:USR1@120", ["--time-limit", "10", "--signal", "B:USR1@120s"]),
        ("--requeue", ["--restartable"]),
        ("--export=ALL,LR=0.1", ["--env", "LR=0.1"]),
        ("--nice=5", ["--priority", "-5"]),
        ("--nice", ["--priority", "-100"]),
        ("--begin=now+2hours", ["--begin", "+2h"]),
        ("--begin=now+60", ["--begin", "+60s"]),
        ("--begin=noon", ["--begin", "12:00"]),
        ("--nodes=1", []),
        ("-v -Q --parsable --verbose", []),
        ("-Hv", ["--hold"]),
        ("--hold --job-name=x # why not", ["--hold", "--name", "x"]),
        ("--job-name=a --job-name=b", ["--name", "b"]),
    ],
)  # fmt: skip
def test_options_of_slurm_are_translated(tmp_path: Path, line: str, flags: list[str]) -> None:
    script = read_script([a_script(tmp_path, f"#SBATCH {line}", "#SBATCH\t-p gpu")])
    assert script is not None
    assert script.flags == flags
    assert script.notices == ["ignored #SBATCH options: --partition"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--nodes=2", "requests 2 nodes"),
        ("--nonsense=1", "`--nonsense` is not an sbatch option$"),
        ("--gpu=1", "`--gpu` is ambiguous"),
        ("--job-name", "needs a value"),
        ("-y", "`-y` is not an sbatch option$"),
        ("train.py", "`train.py` is not an sbatch option$"),
        ("--dependency=singleton", "is not a supported dependency"),
        ("--dependency=after:7", "is not a supported dependency"),
        ("--dependency=afterok:7?afterok:8", "alternative dependencies"),
        ("--job-name='x", "No closing quotation"),
        ("--ntasks=many", "is not a number"),
        ("--input=data.txt", "`--input` is not supported"),
        ("--wrap=true", "`--wrap` is not allowed in a script"),
        ("--export-file=x", "`--export-file` is not supported"),
        ("--container=x", "containers are not supported"),
        ("--test-only", "would queue nothing"),
        ("hetjob", "heterogeneous jobs"),
    ],
)
def test_unsupported_options_of_slurm_are_refused_with_their_line(
    tmp_path: Path, line: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_script([a_script(tmp_path, "", f"#SBATCH {line}")])
    assert "line 3 of" in caught.value.message


@pytest.mark.parametrize("name", sorted(SBATCH))
def test_every_option_of_sbatch_is_translated_ignored_or_refused(tmp_path: Path, name: str) -> None:
    """Translated, ignored with a notice, or refused with an error; never a traceback."""
    try:
        script = read_script([a_script(tmp_path, f"#SBATCH --{name}=1")])
    except UsageError as error:
        assert "job.sh" in error.message
    else:
        assert script is not None


def test_every_option_of_sbatch_is_documented() -> None:
    table = (Path(__file__).parents[2] / "docs" / "coming-from" / "queues.md").read_text()
    missing = [name for name in sorted(SBATCH) if f"`--{name}" not in table]
    assert missing == []


def test_options_after_the_first_command_are_comments(tmp_path: Path) -> None:
    assert read_script([a_script(tmp_path, "cd /", "#SBATCH --nodes=9")]) is None
    assert read_script([a_script(tmp_path, "##SBATCH --nodes=9", "#SBATCHES")]) is None


def test_command_line_overrides_the_options_of_a_script(lab: Lab) -> None:
    path = a_script(
        lab.folder, "#SBATCH --job-name=inside", "#SBATCH -o out-%j.txt", "#stoker --retries 2"
    )
    job = int(lab.ok("submit", "-q", "--name", "outside", path, "a b", "c"))
    assert lab.wait(job) == 0
    facts = lab.job(job)
    assert (facts["name"], facts["retries"]) == ("outside", 2)
    assert (lab.folder / f"out-{job}.txt").read_text() == "ran with 2 arguments: a b c\n"
    assert lab.log(job) == "ran with 2 arguments: a b c\n"


def test_programs_and_scripts_without_options_are_not_changed(lab: Lab) -> None:
    assert read_script(["/bin/sh"]) is None
    plain = a_script(lab.folder, body="echo ran; echo ${SLURM_JOB_ID-none}; type srun || true")
    Path(plain).chmod(0o755)
    job = lab.submit(plain)
    assert lab.wait(job) == 0
    assert lab.log(job).startswith("ran\nnone\n")
    assert "slurm-bin" not in lab.log(job)


def test_patterns_in_output_paths_are_expanded_and_folders_are_created(lab: Lab) -> None:
    path = a_script(lab.folder, "#SBATCH -J train", "#SBATCH -o logs/%x/%u-%J-%A-%N-%%.out",
                    "#SBATCH -e logs/%j/err", body="echo out; echo err >&2")  # fmt: skip
    job = lab.submit(path)
    assert lab.wait(job) == 0
    name = f"{USER}-{job}-{job}-{os.uname().nodename}-%.out"
    assert (lab.folder / "logs" / "train" / name).read_text() == "out\n"
    assert (lab.folder / "logs" / str(job) / "err").read_text() == "err\n"


def test_append_mode_never_overwrites_a_file(lab: Lab) -> None:
    path = a_script(lab.folder, "#SBATCH --open-mode=append", "#SBATCH -o all.txt")
    refused(
        lab.run("submit", path), 2,
        "`--open-mode=append` is not supported: each job overwrites `all.txt`",
        "put %j into the path, or write `exec >> FILE` into the script",
    )  # fmt: skip
    path = a_script(lab.folder, "#SBATCH --open-mode=append", "#SBATCH -o all-%j.txt")
    lab.ok("submit", "--hold", path)


def test_script_that_asks_for_no_gpu_gets_none(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=2)
    body = 'echo "[$CUDA_VISIBLE_DEVICES]" "$SLURM_GPUS_ON_NODE"'
    assert output_of(lab, "#SBATCH --time=10", body=body) == ["[] 0"]
    assert output_of(lab, "#SBATCH --gres=gpu:2", body=body) == ["[0,1] 2"]
    assert output_of(lab, "#SBATCH -t 10", body=body, flags=("--gpus", "1")) == ["[0] 1"]
    assert output_of(lab, "#SBATCH -t 10", "#stoker --gpu-ids 1", body=body) == ["[1] 1"]
    assert output_of(lab, "#stoker --time-limit 10", body=body) == ["[0] "]


def test_variables_of_slurm_are_set(lab: Lab) -> None:
    names = ("JOB_ID", "JOB_NAME", "NTASKS", "CPUS_PER_TASK", "CPUS_ON_NODE", "SUBMIT_DIR",
             "JOB_PARTITION", "NNODES", "RESTART_COUNT")  # fmt: skip
    body = "\n".join(f'echo "${{SLURM_{name}-unset}}"' for name in names)
    assert output_of(
        lab, "#SBATCH -J train -n 2 --cpus-per-task=3", "#SBATCH -p gpu", body=body
    ) == ["1", "train", "2", "3", "6", str(lab.folder), "gpu", "1", "0"]
    assert output_of(lab, "#SBATCH -t 1", body=body)[:4] == ["2", "job.sh", "unset", "unset"]


def test_export_limits_the_environment_of_a_script(lab: Lab) -> None:
    lab.env |= {"SECRET": "s", "KEPT": "k"}
    body = 'echo "${SECRET-none} ${KEPT-none} ${NEW-none} ${SLURM_JOB_ID-none}"; date > /dev/null'
    assert output_of(lab, "#SBATCH --export=ALL,NEW=n", body=body) == ["s k n 1"]
    assert output_of(lab, "#SBATCH --export=NONE", body=body) == ["none none none 2"]
    assert output_of(lab, "#SBATCH --export=KEPT,NEW=n", body=body) == ["none k n 3"]


def test_srun_runs_its_command_once_for_each_task(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=2)
    one = output_of(
        lab, "#SBATCH -t 5",
        body="srun -N1 --cpu-bind=none --mpi pmix -u -l --export=ALL,X=1 "
        "sh -c 'echo \"$X $SLURM_PROCID $1\"' sh --ntasks=9",
    )  # fmt: skip
    assert one == ["1 0 --ntasks=9"]
    several = output_of(
        lab, "#SBATCH --ntasks=2 --gpus-per-task=1",
        body="srun sh -c 'echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NTASKS $CUDA_VISIBLE_DEVICES'",
    )  # fmt: skip
    assert sorted(several) == ["0 0 2 0", "1 1 2 1"]
    files = output_of(
        lab, "#SBATCH -n2", body="srun -o task-%t.txt sh -c 'echo $SLURM_PROCID'; cat task-?.txt"
    )
    assert files == ["0", "1"]


def test_srun_ends_with_the_highest_exit_code_and_its_tasks_end_with_it(lab: Lab) -> None:
    assert output_of(
        lab, "#SBATCH -n 3",
        body="srun sh -c 'exit $SLURM_PROCID' || echo $?\n"
        "srun -n 1 sh -c 'exit 7' || echo $?\n"
        "srun no-such-program || echo $?\nsrun -n 2 -N 2 true || echo $?\nsrun || echo $?",
    ) == [
        "2", "7", "srun: error: no-such-program: No such file or directory", "127",
        "srun: error: cannot use 2 nodes: there is only this host", "1",
        "srun: error: no command given", "1",
    ]  # fmt: skip


def test_job_submitted_by_a_script_does_not_inherit_its_variables(lab: Lab) -> None:
    inner = 'echo "${SLURM_JOB_ID-none}"; case "$PATH" in *slurm-bin*) echo shim;; esac'
    (lab.folder / "inner.sh").write_text(inner)
    stoker = " ".join(f"'{word}'" for word in lab.command)
    lines = output_of(
        lab, "#SBATCH -t 5", body=f"id=$({stoker} submit -q --gpus 0 sh inner.sh); "
        f"{stoker} wait -q $id; {stoker} log $id",
    )  # fmt: skip
    assert lines == ["none"]


def test_script_inside_a_real_allocation_keeps_its_srun(lab: Lab) -> None:
    (lab.folder / "bin").mkdir()
    real = lab.folder / "bin" / "srun"
    real.write_text("#!/bin/sh\necho real\n")
    real.chmod(0o755)
    lab.env |= {"SLURM_JOB_ID": "77", "PATH": f"{lab.folder}/bin:{lab.env['PATH']}"}
    assert output_of(lab, "#SBATCH -t 5", body="srun x; echo $SLURM_JOB_ID") == ["real", "77"]
    del lab.env["SLURM_JOB_ID"]
    assert output_of(lab, "#SBATCH -t 5", body="srun echo ours") == ["ours"]
