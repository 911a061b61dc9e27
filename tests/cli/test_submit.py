"""`stoker submit`: jobs get the words, folder and environment of the submitter."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.helpers import as_json, refused, without_times
from tests.helpers import Gate, is_alive
from tests.lab import Lab

SHOW_ARGV = "import sys; print(sys.argv[1:])"


def test_several_words_reach_the_program_unchanged(lab: Lab) -> None:
    words = ["two  spaces", "*", "$HOME", "it's", '"', "", "a;b", "--flag", "~", "new\nline"]
    job = lab.submit(sys.executable, "-c", SHOW_ARGV, *words)
    assert lab.wait(job) == 0
    assert lab.log(job) == f"{words}\n"


def test_single_quoted_word_is_run_by_the_shell(lab: Lab) -> None:
    job = lab.submit("for n in 1 2; do echo n=$n; done | tac")
    assert lab.wait(job) == 0
    assert lab.log(job) == "n=2\nn=1\n"


def test_word_after_two_dashes_is_a_program_even_with_spaces(lab: Lab) -> None:
    program = lab.folder / "my program"
    program.write_text("#!/bin/sh\necho I have $# arguments\n")
    program.chmod(0o755)
    job = lab.submit("--", str(program))
    assert lab.wait(job) == 0
    assert lab.log(job) == "I have 0 arguments\n"


def test_options_after_the_command_belong_to_it(lab: Lab) -> None:
    job = lab.submit("echo", "--gpus", "99", "--help", "-q", "--json")
    assert lab.wait(job) == 0
    assert lab.log(job) == "--gpus 99 --help -q --json\n"


def test_shell_is_that_of_the_submitter(lab: Lab) -> None:
    job = lab.submit("echo ${BASH_VERSION:+bash}", SHELL="/bin/bash")
    assert lab.wait(job) == 0
    assert lab.log(job) == "bash\n"


def test_job_gets_one_gpu_by_default(lab: Lab) -> None:
    job = lab.submit("env")
    assert lab.wait(job) == 0
    env = dict(line.split("=", 1) for line in lab.log(job).splitlines())
    assert env["CUDA_VISIBLE_DEVICES"] == "0"
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert env["NVIDIA_VISIBLE_DEVICES"] == "0"
    int(env.pop("STOKER_PROCESS_TAGS"), 16)
    assert {key: value for key, value in env.items() if key.startswith("STOKER_")} == {
        "STOKER_JOB_ID": str(job),
        "STOKER_JOB_NAME": "",
        "STOKER_ATTEMPT": "1",
        "STOKER_GPUS": "0",
        "STOKER_GPU_UUIDS": "SIM-0",
        "STOKER_SUBMIT_DIR": str(lab.folder),
        "STOKER_OUTPUT_DIR": str(lab.state_dir / "jobs" / "0" / str(job)),
        "STOKER_CHECKPOINT_DIR": str(lab.state_dir / "jobs" / "0" / str(job) / "checkpoints"),
        "STOKER_METRICS": str(lab.state_dir / "jobs" / "0" / f"{job}.metrics.jsonl"),
        "STOKER_PROGRESS_FILE": str(lab.state_dir / "jobs" / "0" / f"{job}.progress"),
        "STOKER_STOP_FILE": str(lab.state_dir / "jobs" / "0" / f"{job}.stop"),
        "STOKER_REQUEUE_FILE": str(lab.state_dir / "jobs" / "0" / f"{job}.requeue"),
        "STOKER_THREADS": "32",  # of the 64 cores and two GPUs of the lab
        **{key: value for key, value in lab.env.items() if key.startswith("STOKER_")},
    }


def test_job_without_gpus_sees_none(lab: Lab) -> None:
    job = lab.submit("--gpus", "0", 'echo "[$CUDA_VISIBLE_DEVICES] $NVIDIA_VISIBLE_DEVICES"')
    assert lab.wait(job) == 0
    assert lab.log(job) == "[] void\n"


def test_job_on_a_host_without_gpus_gets_none(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab()
    job = lab.submit('echo "[$CUDA_VISIBLE_DEVICES]"', CUDA_VISIBLE_DEVICES="7")
    assert lab.wait(job) == 0
    assert lab.log(job) == "[]\n"
    assert lab.job(job)["gpus"] == 0


def test_wide_job_sees_all_its_gpus(lab: Lab) -> None:
    job = lab.submit("-G2", "echo $CUDA_VISIBLE_DEVICES $STOKER_GPU_UUIDS")
    assert lab.wait(job) == 0
    assert lab.log(job) == "0,1 SIM-0,SIM-1\n"
    assert lab.job(job)["devices"] == [
        {"index": 0, "uuid": "SIM-0"},
        {"index": 1, "uuid": "SIM-1"},
    ]


def test_job_runs_with_the_submitters_environment_folder_and_mask(lab: Lab) -> None:
    here = lab.folder / "here"
    here.mkdir()
    before = os.umask(0o027)
    try:
        words = ("submit", "-q", "pwd; umask; echo $FLAVOUR")
        job = int(lab.ok(*words, cwd=here, FLAVOUR="vanilla"))
    finally:
        os.umask(before)
    assert lab.wait(job) == 0
    assert lab.log(job) == f"{here}\n0027\nvanilla\n"


def test_each_job_has_the_environment_of_its_own_submit(lab: Lab) -> None:
    first = lab.submit("echo $FLAVOUR", FLAVOUR="vanilla")
    second = lab.submit("echo $FLAVOUR", FLAVOUR="mint")
    assert lab.wait(first, second) == 0
    assert (lab.log(first), lab.log(second)) == ("vanilla\n", "mint\n")


def test_env_flags_win_over_env_files_and_those_over_the_environment(lab: Lab) -> None:
    (lab.folder / "vars").write_text("# a comment\n\nA=file\nexport B='file b'\nC=x=y\n")
    job = lab.submit(
        "--env-file", "vars", "-E", "A=flag", "--env=E=", 'echo "$A|$B|$C|$D|${E-unset}"',
        A="shell", B="shell", D="shell", E="shell",
    )  # fmt: skip
    assert lab.wait(job) == 0
    assert lab.log(job) == "flag|file b|x=y|shell|\n"


def test_bare_env_name_copies_the_variable(lab: Lab) -> None:
    job = lab.submit("-E", "TOKEN", "echo $TOKEN", TOKEN="abc")
    assert lab.wait(job) == 0
    assert lab.log(job) == "abc\n"


def test_cwd_is_relative_to_the_current_folder(lab: Lab) -> None:
    (lab.folder / "data").mkdir()
    job = lab.submit("--cwd", "data", "pwd")
    assert lab.wait(job) == 0
    assert lab.log(job) == f"{lab.folder / 'data'}\n"


def test_output_goes_to_the_given_files(lab: Lab) -> None:
    job = lab.submit("-o", "out.txt", "-e", "err.txt", "echo out; echo err >&2")
    assert lab.wait(job) == 0
    assert (lab.folder / "out.txt").read_text() == "out\n"
    assert (lab.folder / "err.txt").read_text() == "err\n"
    assert lab.log(job) == "out\n"
    assert lab.ok("log", "--err", str(job)) == "err\n"


def test_output_and_errors_share_one_log_in_order(lab: Lab) -> None:
    job = lab.submit("echo 1; echo 2 >&2; echo 3")
    assert lab.wait(job) == 0
    assert lab.log(job) == "1\n2\n3\n"


def test_job_has_an_empty_stdin(lab: Lab) -> None:
    job = lab.submit("wc -c")
    assert lab.wait(job) == 0
    assert lab.log(job) == "0\n"


def test_submit_prints_the_id_and_how_to_follow(lab: Lab) -> None:
    done = lab.run("submit", "true")
    assert done.stdout == "job 1 queued                       follow: stoker log -f 1\n"
    assert done.stderr == ("started the background daemon; stopping it does not stop your jobs\n")
    again = lab.run("submit", "--hold", "true")
    assert again.stdout == "job 2 held                         start: stoker release 2\n"
    assert again.stderr == ""


def test_quiet_prints_only_the_id_and_json_a_list(lab: Lab) -> None:
    assert lab.ok("submit", "-q", "true") == "1\n"
    assert as_json(lab.ok("submit", "--json", "true")) == {"schema": 2, "jobs": [2]}
    assert lab.ok("add", "-q", "true") == "3\n"


def test_dry_run_shows_jobs_and_queues_nothing(lab: Lab) -> None:
    (lab.folder / "a b.py").touch()
    done = lab.run("submit", "--dry-run", "-G2", "-t", "90", "python3", "a b.py")
    shown = "2 GPUs, at most 1h30m  no shell  python3 'a b.py'\n"
    assert (done.returncode, done.stdout) == (0, shown)
    assert done.stderr == "1 job, none queued (--dry-run)\n"
    shell = lab.run("submit", "--dry-run", "echo $HOME")
    assert shell.stdout == "1 GPU  /bin/sh -c  echo $HOME\n"
    jobs = as_json(lab.ok("submit", "--dry-run", "--json", "x", "y"))["dry_run"]
    assert jobs == [
        {"argv": ["x", "y"], "shell": False, "gpus": 1, "gpu_mem_bytes": None,
         "gpu_mem_auto": False, "gpu_ids": [], "prefer": [], "gpu_model": None,
         "min_gpu_mem_bytes": None, "cpus": None, "mem_bytes": None, "mem_auto": False, "need": {},
         "exclusive": False, "share": None, "on": "local", "nodes": 1, "option": [],
         "on_oom": None, "restartable": False, "preemptible": False, "no_bind": False, "warm": None,
         "notify": [],
         "conda": None, "venv": None, "uv": False, "module": [], "container": None, "mount": [],
         "snapshot": False,
         "name": None, "cwd": str(lab.folder),
         "priority": 0, "time_limit": None, "begin_at": None, "retries": 0, "held": False,
         "tags": [], "array": None, "after": []}
    ]  # fmt: skip
    assert lab.states() == {}
    assert lab.daemon_pid() is None


def test_dry_run_prints_all_options_that_are_not_default(lab: Lab) -> None:
    flags = "-G0 -n big -T a,b -p 5 -t 2h -r 3 -d 7 -d 8:any --begin 2031-01-01T12:00 --hold"
    shown = lab.ok("submit", "--dry-run", *flags.split(), "true")
    assert shown == (
        "no GPU, name big, tags a b, priority 5, at most 2h00m, retries 3, after 7, after 8:any,"
        " not before 2031-01-01 12:00:00, held  /bin/sh -c  true\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["   "], "the command is empty"),
        (["--dedupe", "", "true"], "`--dedupe` must not be empty"),
        (["--tag", "", "true"], "`--tag`: a tag must not be empty"),
        (["-T", "a,", "true"], "`-T`: `a,` has an empty tag"),
        (["-o", "", "true"], "`-o` must not be empty"),
        (["--stderr", "", "true"], "`--stderr` must not be empty"),
    ],
)
def test_empty_words_are_refused(lab: Lab, words: list[str], message: str) -> None:
    refused(lab.run("submit", *words), 2, message)


def test_jobs_can_be_selected_by_name_and_tag(lab: Lab) -> None:
    job = lab.submit("--hold", "--name", "big run", "-T", "a", "--tag=b", "true")
    assert lab.job(job)["name"] == "big run"
    assert lab.job(job)["tags"] == ["a", "b"]
    for words in (["big run"], ["name:big run"], ["a"], ["tag:b"]):
        assert json.loads(lab.ok("ls", "--json", *words))["jobs"][0]["id"] == job


def test_program_that_is_missing_fails_with_127(lab: Lab) -> None:
    job = lab.submit("no-such-program", "--now")
    assert lab.wait(job) == 127
    assert lab.job(job)["cause"] == "start_failed"
    shown = without_times(lab.ok("show", str(job)))
    assert "state       failed: no-such-program: command not found\n" in shown


def test_file_that_is_not_executable_fails_with_126(lab: Lab) -> None:
    path = lab.folder / "data.bin"
    path.write_text("x")
    path.chmod(0o755)
    job = lab.submit("--hold", "--", "./data.bin")
    path.chmod(0o644)
    lab.ok("release", str(job))
    assert lab.wait(job) == 126


def test_job_whose_folder_was_removed_fails_with_a_reason(lab: Lab) -> None:
    place = Path(lab.folder / "soon gone")
    place.mkdir()
    job = lab.submit("--hold", "--cwd", str(place), "true")
    place.rmdir()
    lab.ok("release", str(job))
    assert lab.wait(job) == 126
    assert lab.job(job)["detail"] == (f"cannot enter the folder {place}: No such file or directory")


@pytest.mark.parametrize("kept", [True, False])
def test_leftover_processes_are_killed_unless_kept(lab: Lab, kept: bool) -> None:
    gate = Gate(lab.folder)
    (lab.folder / "child").write_text(gate.wait)
    text = f"setsid sh child & until [ -e {gate.arrivals.name} ]; do :; done"
    job = lab.submit(*(["--keep-children"] if kept else []), text)
    assert lab.wait(job) == 0
    (child,) = gate.wait_for()
    assert is_alive(child) == kept


@pytest.mark.parametrize(
    ("mask", "given"), [("2", "2"), ("3,1", "1"), ("7", "0"), ("0,1,2,3", "0"), ("", "0")]
)
def test_job_uses_only_the_gpus_visible_to_its_submitter(
    new_lab: Callable[..., Lab], mask: str, given: str
) -> None:
    lab = new_lab(devices=4)
    job = lab.submit("echo $CUDA_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES", CUDA_VISIBLE_DEVICES=mask)
    lab.wait(job)
    assert lab.log(job) == f"{given} {given}\n"
    inside = lab.submit("echo $CUDA_VISIBLE_DEVICES", CUDA_VISIBLE_DEVICES=mask, STOKER_JOB_ID="1")
    lab.wait(inside)
    assert lab.log(inside) == "0\n"
