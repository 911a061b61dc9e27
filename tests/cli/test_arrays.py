"""Arrays, dependencies by selector, and output paths on the command line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.test_directives import a_script
from tests.helpers import Gate
from tests.lab import Lab


def fails(done: subprocess.CompletedProcess[str], code: int, text: str) -> None:
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("error: ")
    assert text in done.stderr.partition("\nhint: ")[0]
    assert "\nhint: " in done.stderr


def test_jobs_of_an_array_have_their_index_and_output_file(lab: Lab) -> None:
    text = 'echo "$STOKER_ARRAY_ID $STOKER_ARRAY_INDEX of $STOKER_ARRAY_COUNT"'
    said = lab.ok("submit", "-G0", "-n", "a", "--array", "2-6:2", "-o", "new/%x-%A_%2a", text)
    assert said.startswith("array 1 queued: jobs 1-3  ")
    assert lab.wait(1, 2, 3) == 0
    for index in (2, 4, 6):
        assert (lab.folder / "new" / f"a-1_0{index}").read_text() == f"1 {index} of 3\n"
    assert "a 1_4" in lab.ok("ls", "1_4")
    assert "1_4: index 4 of 2-6:2\n" in lab.ok("show", "1_4")


def test_limit_of_an_array_is_kept_and_explained(lab: Lab) -> None:
    gate = Gate(lab.folder, "gate")
    lab.ok("submit", "-G0", "--array", "0-3%1", gate.wait)
    lab.wait_until(lambda: lab.state(1) == "running")
    assert [lab.state(job) for job in (2, 3, 4)] == ["queued"] * 3
    words = "the array runs at most 1 job at once: job 1 runs"
    assert words in lab.ok("why", "1_3")
    assert lab.ok("edit", "array:1", "--array-limit", "2") == (
        "array 1 runs at most 2 jobs at once\n"
    )
    lab.wait_until(lambda: lab.state(2) == "running")
    assert [lab.state(job) for job in (3, 4)] == ["queued"] * 2
    gate.open()
    assert lab.wait(1, 2, 3, 4) == 0


def test_array_limit_is_for_the_jobs_of_one_array(lab: Lab) -> None:
    lab.ok("submit", "--hold", "--array", "0-1", "true")
    lab.ok("submit", "--hold", "true")
    for words in (("3",), ("1-3",)):
        done = lab.run("edit", *words, "--array-limit", "2")
        fails(done, 2, "`--array-limit` needs the jobs of one array")
    done = lab.run("edit", "1", "--array-limit", "2", "--gpus", "0")
    fails(done, 2, "`--array-limit` is a change of the whole array")


def test_array_of_a_slurm_script_has_the_variables_of_slurm(lab: Lab) -> None:
    path = a_script(
        lab.folder, "#SBATCH --array=1-3:2%1", "#SBATCH -o out/%%j-%a-%J.txt",
        body='echo "$SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT'
        ' $SLURM_ARRAY_TASK_MAX $SLURM_JOB_ID"',
    )  # fmt: skip
    lab.ok("submit", path)
    assert lab.wait(1, 2) == 0
    assert (lab.folder / "out" / "%j-1-1.txt").read_text() == "1 1 2 3 1\n"
    assert (lab.folder / "out" / "%j-3-2.txt").read_text() == "1 3 2 3 2\n"


def test_submit_says_which_jobs_were_found(lab: Lab) -> None:
    lab.ok("submit", "--hold", "--name", "prep", "--array", "0-2", "true")
    assert "job 4 waits for jobs 1-3 to succeed\n" in lab.ok(
        "submit", "--hold", "--after", "prep", "true"
    )
    said = lab.ok("submit", "--hold", "--array", "0-1", "--after", "@:any,1_1:notok", "true")
    assert "its jobs wait for job 2 to fail and job 4 to finish\n" in said
    assert lab.job(5)["after"] == lab.job(6)["after"] == [
        {"job": 2, "condition": "notok", "met": False},
        {"job": 4, "condition": "any", "met": False},
    ]  # fmt: skip
    assert lab.ok("edit", "6", "--after", "prep") == (
        "job 6 changed; it waits for jobs 1-3 to succeed\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--after", "nonsense"), 1, "there is no job `nonsense` to wait for"),
        (("--after", "@"), 1, "`@` is not a job: the queue has too few jobs"),
        (("--after", "running"), 2, "`--after`: `running` is a state, not a job"),
        (("--array", "0-9%0"), 2, "`--array`: `0-9%0` would run no job"),
    ],
)
def test_submit_with_an_unknown_value_queues_nothing(
    lab: Lab, words: tuple[str, ...], code: int, message: str
) -> None:
    fails(lab.run("submit", *words, "true"), code, message)
    assert lab.states() == {}


def test_job_file_with_an_unknown_name_queues_nothing(lab: Lab) -> None:
    path = lab.folder / "jobs.txt"
    path.write_text("a #stoker --name x\nb #stoker --after x\nc #stoker --after y\n")
    done = lab.run("submit", "--file", str(path))
    fails(done, 1, "line 3: `--after`: there is no job `y` to wait for")
    assert lab.states() == {}
    path.write_text("true #stoker --name x\ntrue #stoker --after x\ntrue #stoker --after @ -G0\n")
    lab.ok("submit", "--hold", "--file", str(path))
    assert [[one["job"] for one in lab.job(job)["after"]] for job in (1, 2, 3)] == [[], [1], [2]]


def test_dry_run_shows_the_array_and_the_jobs_that_were_found(lab: Lab) -> None:
    lab.ok("submit", "--hold", "--name", "prep", "true")
    words = ("submit", "--dry-run", "-G0", "--array", "0-4%2", "--after", "prep", "true")
    done = lab.run(*words)
    assert done.stdout == "no GPU, array 0-4%2, after 1  /bin/sh -c  true\n"
    assert done.stderr == "5 jobs, none queued (--dry-run)\n"
    shown = json.loads(lab.ok("submit", "--json", *words[1:]))
    assert shown["dry_run"][0]["after"] == [{"job": 1, "condition": "ok"}]
    assert lab.states() == {1: "held"}


def test_output_below_a_file_is_refused_before_the_job_is_queued(lab: Lab) -> None:
    (lab.folder / "file").touch()
    done = lab.run("submit", "-o", "file/logs/%j.txt", "true")
    fails(done, 2, f"`{lab.folder}/file` is not a folder")
    assert lab.states() == {}


def test_output_folder_that_cannot_be_created_fails_the_job_before_its_start(lab: Lab) -> None:
    gate = Gate(lab.folder, "gate")
    first = lab.submit("-G0", gate.wait)
    job = lab.submit("-G0", "--after", str(first), "-o", "logs/out.txt", "touch ran")
    Path(lab.folder / "logs").touch()
    gate.open()
    lab.wait(job)
    found = lab.job(job)
    assert found["state"] == "failed"
    assert "cannot create the folder" in found["result"]
    assert not (lab.folder / "ran").exists()


def test_table_of_jobs_has_array_and_index(lab: Lab) -> None:
    lab.ok("submit", "--hold", "--array", "4,7", "true")
    lines = lab.ok("ls", "--columns", "id,array,index", "--where", "index == 7").splitlines()
    assert [line.split() for line in lines][1] == ["2", "1", "7"]
