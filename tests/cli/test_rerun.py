"""`stoker rerun` keeps the dependencies between the rerun jobs."""

from __future__ import annotations

import pytest

from tests.cli.helpers import refused
from tests.lab import Lab


def pipeline(lab: Lab) -> tuple[int, int, int]:
    """Three jobs, each after the one before; the first fails unless the file `good` exists."""
    first = lab.submit("--hold", "test -e good")
    second = lab.submit("--after", str(first), "echo 2 >> order")
    third = lab.submit("--after", str(second), "echo 3 >> order")
    lab.ok("release", str(first))
    lab.wait(first, second, third)
    return first, second, third


def test_failed_pipeline_is_rerun_in_order(lab: Lab) -> None:
    first, second, third = pipeline(lab)
    assert lab.job(third)["cause"] == "dependency"
    (lab.folder / "good").touch()
    again = lab.ok("rerun", "--failed", "--hold")
    assert again == f"3 jobs resubmitted: {first} as 4, {second} as 5, {third} as 6\n"
    lab.ok("release", "4-6")
    assert lab.wait(4, 5, 6) == 0
    assert (lab.folder / "order").read_text() == "2\n3\n"


def test_rerun_pipeline_that_fails_again_stops(lab: Lab) -> None:
    lab.ok("rerun", *map(str, pipeline(lab)))
    lab.wait(4, 5, 6)
    assert [lab.state(job) for job in (4, 5, 6)] == ["failed", "cancelled", "cancelled"]
    assert not (lab.folder / "order").exists()


def test_rerun_waits_for_the_reruns_of_its_dependencies(lab: Lab) -> None:
    first, second, _ = pipeline(lab)
    (lab.folder / "good").touch()
    lab.ok("rerun", "--hold", str(first))
    lab.ok("rerun", str(second))
    assert lab.state(5) == "queued"
    lab.ok("release", "4")
    assert lab.wait(4, 5) == 0


def test_rerun_with_an_impossible_dependency_is_refused(lab: Lab) -> None:
    first, second, third = pipeline(lab)
    refused(
        lab.run("rerun", str(first), str(third)), 1,
        f"job {third} depends on job {second}, which did not end as required",
        f"`stoker rerun {second} {third}` submits both again",
    )  # fmt: skip
    assert len(lab.states()) == 3


@pytest.mark.parametrize("condition", ["ok", "any", "notok"])
def test_rerun_does_not_wait_for_met_dependencies(lab: Lab, condition: str) -> None:
    first = lab.submit("exit 1" if condition == "notok" else "true")
    second = lab.submit("--after", f"{first}:{condition}", "echo ran")
    lab.wait(first, second)
    lab.ok("rm", str(first))
    lab.ok("rerun", str(second))
    assert lab.wait(3) == 0


def test_rerun_writes_to_its_own_file(lab: Lab) -> None:
    job = lab.submit("-o", "out-%j.txt", "-e", "err-%j.txt", "echo $STOKER_JOB_ID; echo e >&2")
    lab.wait(job)
    lab.ok("rerun", str(job))
    lab.wait(2)
    assert [(lab.folder / f"out-{n}.txt").read_text() for n in (1, 2)] == ["1\n", "2\n"]
    assert lab.job(2)["stdout"].endswith("/out-2.txt")
    assert lab.ok("log", "2") == "2\n"


def test_rerun_changes_the_request_with_the_options_of_edit(lab: Lab) -> None:
    lab.wait(lab.submit("--time-limit", "1h", "echo $LR; exit 1"))
    lab.ok("rerun", "1", "--time-limit", "8h", "--env", "LR=0.5", "-n", "again", "--retries", "0")
    lab.wait(2)
    job = lab.job(2)
    assert (job["time_limit"], job["name"], job["rerun_of"]) == (8 * 3600, "again", 1)
    assert lab.log(2) == "0.5\n"
    refused(
        lab.run("rerun", "1", "--gpus", "99"), 65,
        "the job requests 99 GPUs, but this host has 2 GPUs", "use --gpus 2 or fewer",
    )  # fmt: skip
    refused(lab.run("rerun", "1", "--after", "77"), 1, "there is no job 77 to wait for",
            "`stoker ls` shows the jobs")  # fmt: skip
    assert set(lab.states()) == {1, 2}
    lab.ok("rerun", "1", "--hold", "--priority", "3")
    assert (lab.state(3), lab.job(3)["priority"]) == ("held", 3)


def test_rerun_with_resume_finds_the_checkpoints_of_the_old_job(lab: Lab) -> None:
    script = "cd $STOKER_CHECKPOINT_DIR && cat last && exit 0; mkdir -p $STOKER_CHECKPOINT_DIR;"
    lab.wait(lab.submit(f"{script} echo 41 > $STOKER_CHECKPOINT_DIR/last; exit 1"))
    lab.ok("rerun", "--resume", "1")
    assert lab.wait(2) == 0
    assert lab.log(2).endswith("41\n")
    lab.ok("rm", "1")
    lab.ok("rerun", "--resume", "2")
    assert lab.wait(3) == 0
    lab.wait(lab.submit("true"))
    folder = lab.state_dir / "jobs/0/4/checkpoints"
    refused(lab.run("rerun", "--resume", "4"), 1,
            f"job 4 has no checkpoints: there is no folder `{folder}`",
            "rerun it without --resume: stoker rerun 4")  # fmt: skip
    assert set(lab.states()) == {2, 3, 4}
