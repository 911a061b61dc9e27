"""The same jobs have the same results on every backend.

The tests of one backend share a queue. To add a backend, add its name to `BACKENDS` and a function
that opens its queue to `_OPEN`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stoker.features.code.code_checks import MIN_WAIT_SECONDS
from tests.engines.ray_cluster import RayCluster
from tests.engines.slurm_cluster import SlurmCluster
from tests.features.backends.ray_lab import RayLab
from tests.features.backends.slurm_lab import BACKEND, SlurmLab, check_trial_files
from tests.features.code.git_repository import GitRepository
from tests.features.environments import layouts
from tests.helpers import Gate
from tests.lab import Lab, wait_until

BACKENDS = ("local", "slurm", "ray")
_FINAL = {"done", "failed", "cancelled", "lost"}


class Place:
    """A queue, and the options that make its jobs run on one backend."""

    def __init__(self, lab: Lab, *on: str) -> None:
        self.lab = lab
        self.on = on

    def submit(self, *args: str, **env: str) -> int:
        return self.lab.submit(*self.on, *args, **env)

    def submit_lines(self, lines: list[str], *args: str, **kwargs: Any) -> list[int]:
        words = ("submit", "-q", *self.on, *args, "--file", "-")
        return [int(id) for id in self.lab.ok(*words, input="\n".join(lines), **kwargs).split()]

    def finished(self, job: int) -> dict[str, Any]:
        """Wait for the end of a job and return it."""
        self.lab.wait(job)
        return self.lab.job(job)

    def run(self, *args: str, **env: str) -> dict[str, Any]:
        """Run one job to its end and return it."""
        return self.finished(self.submit(*args, **env))

    def gate(self, name: str) -> Gate:
        return Gate(self.lab.folder, name)


@contextmanager
def _open_local(folder: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    lab = Lab(folder, devices=4, STOKER_RETRY_DELAY="0.1")
    yield Place(lab)
    lab.close()


@contextmanager
def _open_slurm(folder: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    cluster: SlurmCluster = request.getfixturevalue("_shared_slurm")
    lab = SlurmLab(folder, cluster, devices=4, STOKER_RETRY_DELAY="0.1")
    yield Place(lab, "--on", BACKEND)
    lab.close()


@contextmanager
def _open_ray(folder: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    cluster: RayCluster = request.getfixturevalue("_shared_ray")
    lab = RayLab(folder, cluster, devices=4, STOKER_RETRY_DELAY="0.1")
    yield Place(lab, "--on", BACKEND)
    lab.close()
    cluster.clean()


_OPEN = {"local": _open_local, "slurm": _open_slurm, "ray": _open_ray}


@pytest.fixture(scope="module", params=BACKENDS)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp(request.param)
    with _OPEN[request.param](folder, request) as opened:
        yield opened


def _result(job: dict[str, Any]) -> tuple[str, str, int | None, int | None, int]:
    return job["state"], job["cause"], job["exit_code"], job["signal"], job["attempts"]


# -- ends ----------------------------------------------------------------------------------------


_RESULTS = {
    "true": ("done", "exit", 0, None, 1),
    "exit 3": ("failed", "exit", 3, None, 1),
    "kill -SEGV $$": ("failed", "signal", None, int(signal.SIGSEGV), 1),
    "no-such-program-at-all": ("failed", "start_failed", 127, None, 1),
    "true; no-such-program": ("failed", "missing_program", 127, None, 1),
    "exit 75": ("failed", "exit", 75, None, 1),
}


def test_results_of_jobs_do_not_depend_on_the_backend(place: Place) -> None:
    jobs = {command: place.submit(command) for command in _RESULTS}
    assert {command: _result(place.finished(job)) for command, job in jobs.items()} == _RESULTS


def test_program_that_cannot_be_started_is_named_in_the_result(place: Place) -> None:
    job = place.run("--", "./no-such-file", "1")
    assert (job["state"], job["cause"]) == ("failed", "start_failed")
    assert "no-such-file" in job["detail"]


def test_time_limit_stops_a_job_after_its_signal(place: Place) -> None:
    script = "trap 'echo warned' USR1; echo up; while :; do sleep 0.05; done"
    job = place.run("--time-limit", "3s", "--signal", "B:USR1@2", "--grace", "1s", script)
    assert (job["state"], job["cause"]) == ("failed", "time_limit")
    lines = place.lab.log(job["id"]).splitlines()
    assert lines[0] == "up"
    assert "warned" in lines


def test_failing_job_is_retried_as_often_as_requested(place: Place) -> None:
    job = place.run("--retries", "2", 'echo "attempt $STOKER_ATTEMPT"; exit 4')
    assert _result(job) == ("failed", "exit", 4, None, 3)
    assert [attempt["number"] for attempt in job["history"]] == [1, 2, 3]
    assert place.lab.log(job["id"]) == "attempt 3\n"


def test_restartable_job_that_exits_with_75_is_started_again(place: Place) -> None:
    script = 'echo "$STOKER_ATTEMPT" >> tries; [ "$STOKER_ATTEMPT" = 2 ] || exit 75'
    folder = place.lab.folder / f"requeue{len(place.on)}"
    folder.mkdir()
    job = place.run("--restartable", f"cd {folder}; {script}")
    assert _result(job) == ("done", "exit", 0, None, 2)
    assert (folder / "tries").read_text() == "1\n2\n"
    assert [attempt["cause"] for attempt in job["history"]] == ["requeue", "exit"]


# -- cancel, hold, order -------------------------------------------------------------------------


def test_cancelled_running_job_ends_with_its_processes(place: Place) -> None:
    gate = place.gate("cancel-running")
    job = place.submit(f"{gate.wait} & wait")
    gate.wait_for()
    place.lab.ok("cancel", str(job))
    assert _result(place.finished(job)) == ("cancelled", "user", None, int(signal.SIGTERM), 1)


def test_cancelled_waiting_jobs_never_run(place: Place) -> None:
    gate, mark = place.gate("cancel-waiting"), place.lab.folder / "never-run"
    blockers = [place.submit("--gpus", "4", gate.wait) for _ in range(3)]
    gate.wait_for(1 if not place.on else 3)
    waiting = place.submit_lines([f"touch {mark}"] * 8, "--gpus", "4")
    place.lab.ok("cancel", *map(str, waiting[:2]))
    place.lab.ok("cancel", *map(str, waiting[2:]))
    for job in waiting:
        found = place.finished(job)
        assert (found["state"], found["cause"], found["attempts"]) == ("cancelled", "user", 0)
    gate.open()
    assert place.lab.wait(*blockers) == 0
    assert not mark.exists()


def test_held_job_runs_after_its_release(place: Place) -> None:
    job = place.submit("--hold", "true")
    first = place.run("true")
    assert first["state"] == "done"
    assert place.lab.state(job) == "held"
    place.lab.ok("release", str(job))
    assert place.finished(job)["state"] == "done"


def test_job_with_higher_priority_starts_first(place: Place) -> None:
    path = place.lab.folder / "order"
    low = place.submit("--hold", "--gpus", "4", f"echo low >> {path}")
    high = place.submit("--hold", "--gpus", "4", "--priority", "5", f"echo high >> {path}")
    gate = place.gate("priority")
    blockers = [place.submit("--gpus", "4", gate.wait) for _ in range(3 if place.on else 1)]
    gate.wait_for(len(blockers))
    place.lab.ok("release", str(low), str(high))
    gate.open()
    assert place.lab.wait(low, high, *blockers) == 0
    assert sorted(path.read_text().split()) == ["high", "low"]


def test_rerun_starts_a_finished_job_again(place: Place) -> None:
    job = place.run("echo again; exit 1")
    again = json.loads(place.lab.ok("rerun", "--json", str(job["id"])))["jobs"][0]
    found = place.finished(again)
    assert _result(found) == ("failed", "exit", 1, None, 1)
    assert found["on"] == job["on"]
    assert place.lab.log(again) == "again\n"


# -- dependencies --------------------------------------------------------------------------------


@pytest.mark.parametrize("is_first_local", [True, False])
def test_dependencies_hold_across_backends(place: Place, is_first_local: bool) -> None:
    first_on, second_on = ((), place.on) if is_first_local else (place.on, ())
    lab = place.lab
    good = lab.submit("--hold", *first_on, "true")
    bad = lab.submit("--hold", *first_on, "exit 1")
    after = {
        key: lab.submit("--after", f"{needs}:{how}", *second_on, "true")
        for key, needs, how in (
            ("good ok", good, "ok"),
            ("good notok", good, "notok"),
            ("bad ok", bad, "ok"),
            ("bad notok", bad, "notok"),
            ("bad any", bad, "any"),
        )
    }
    lab.ok("release", str(good), str(bad))
    found = {key: place.finished(job) for key, job in after.items()}
    states = {key: (job["state"], job["cause"]) for key, job in found.items()}
    assert states == {
        "good ok": ("done", "exit"),
        "good notok": ("cancelled", "dependency"),
        "bad ok": ("cancelled", "dependency"),
        "bad notok": ("done", "exit"),
        "bad any": ("done", "exit"),
    }


# -- what a job finds ----------------------------------------------------------------------------


def test_job_finds_its_id_attempt_folder_and_environment(place: Place) -> None:
    script = (
        'echo "$STOKER_JOB_ID $STOKER_ATTEMPT $MY_OWN"; pwd;'
        ' echo out > "$STOKER_OUTPUT_DIR/result"; echo "$STOKER_OUTPUT_DIR"; echo err >&2'
    )
    job = place.submit(script, MY_OWN="käse\n2")
    assert place.finished(job)["state"] == "done"
    ids, rest, folder, output, err = place.lab.log(job).splitlines()
    assert (ids, rest) == (f"{job} 1 käse", "2")
    assert folder == str(place.lab.folder)
    assert err == "err"
    assert (Path(output) / "result").read_text() == "out\n"


def test_job_runs_in_its_virtual_environment(place: Place) -> None:
    venv = layouts.venv(place.lab.folder / "my venv")
    job = place.run("--gpus", "0", "--venv", str(venv), "python", "-c", layouts.PREFIX)
    assert place.lab.log(job["id"]) == f"{venv}\n"


def test_concurrent_jobs_on_one_node_have_different_gpus(place: Place) -> None:
    gate = place.gate("gpus")
    script = f'echo "$(hostname) $CUDA_VISIBLE_DEVICES"; {gate.wait}'
    jobs = [place.submit("--gpus", "2", script) for _ in range(2)]
    gate.wait_for(2)
    gate.open()
    assert place.lab.wait(*jobs) == 0
    used = [
        (host, gpu)
        for job in jobs
        for host, gpus in [place.lab.log(job).split()]
        for gpu in gpus.split(",")
    ]
    assert len(used) == 4
    assert len(set(used)) == 4


def test_job_without_gpu_sees_none(place: Place) -> None:
    job = place.submit("--gpus", "0", 'echo "<$CUDA_VISIBLE_DEVICES>"')
    assert place.finished(job)["state"] == "done"
    assert place.lab.log(job) == "<>\n"


def test_jobs_with_declared_memory_run(place: Place) -> None:
    jobs = place.submit_lines(['echo "$CUDA_VISIBLE_DEVICES"'] * 4, "--gpu-mem", "2G")
    assert place.lab.wait(*jobs) == 0
    assert all(place.lab.log(job).strip() for job in jobs)


def test_metrics_of_a_job_are_shown(place: Place) -> None:
    program = "import stoker; stoker.log(loss=0.5, step=1); stoker.log(loss=0.25, step=2)"
    job = place.submit("--", sys.executable, "-c", program)
    assert place.finished(job)["state"] == "done"
    shown = json.loads(place.lab.ok("results", str(job), "--json"))
    assert "0.25" in json.dumps(shown)


def test_log_of_a_job_that_printed_nothing_is_empty(place: Place) -> None:
    for command in ("true", "exit 3"):
        job = place.submit(command)
        place.lab.wait(job)
        done = place.lab.run("log", str(job))
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == f"job {job} printed nothing\n"


def test_output_goes_to_the_requested_files(place: Place) -> None:
    job = place.submit("--stdout", "out-%j.txt", "--stderr", "err-%j.txt", "echo one; echo two >&2")
    assert place.finished(job)["state"] == "done"
    assert (place.lab.folder / f"out-{job}.txt").read_text() == "one\n"
    assert (place.lab.folder / f"err-{job}.txt").read_text() == "two\n"


def test_array_runs_no_more_jobs_at_once_than_its_limit(place: Place) -> None:
    order = f"array-order-{len(place.on)}"
    text = f'echo "begin $STOKER_ARRAY_INDEX" >> {order}; sleep 0.1; echo end >> {order}; pwd'
    words = ("submit", "-q", *place.on, "--gpus", "0", "-o", "%A-%2a.txt", "--array", "3-7:2%1")
    jobs = [int(id) for id in place.lab.ok(*words, text).split()]
    assert place.lab.wait(*jobs) == 0
    assert [place.lab.job(job)["array_index"] for job in jobs] == [3, 5, 7]
    for index in (3, 5, 7):
        assert (place.lab.folder / f"{jobs[0]}-0{index}.txt").read_text()
    if place.on and place.on[1] == BACKEND and isinstance(place.lab, RayLab):
        return  # its jobs run in copies of the folder
    lines = (place.lab.folder / order).read_text().splitlines()
    assert lines == ["begin 3", "end", "begin 5", "end", "begin 7", "end"]


def test_job_in_a_snapshot_runs_the_code_of_its_submit(place: Place) -> None:
    repository = GitRepository(place.lab.folder / "code of the jobs")
    repository.commit(main_sh="echo one; cat part/more.txt", gitignore="")
    repository.write("part/more.txt", "untracked\n")
    job = place.submit("--hold", "--snapshot", "-C", str(repository.folder), "sh main.sh")
    repository.write("main.sh", "echo two")
    place.lab.ok("release", str(job))
    assert place.finished(job)["state"] == "done"
    assert place.lab.log(job) == "one\nuntracked\n"
    assert place.lab.job(job)["code"]["branch"] == "main"


def test_job_whose_code_has_changed_says_so(place: Place) -> None:
    repository = GitRepository(place.lab.folder / "code that changes")
    repository.commit(main_sh="echo one", other_sh="")
    job = place.submit("--hold", "-C", str(repository.folder), "sh main.sh")
    if not place.on:  # on this host, jobs that start at once are not compared
        enough = time.monotonic() + MIN_WAIT_SECONDS + 0.1
        place.lab.wait_until(lambda: time.monotonic() > enough)
    repository.write("main.sh", "echo two")
    place.lab.ok("release", str(job))
    assert place.finished(job)["state"] == "done"
    line = "stoker: the code has changed since submit: main.sh"
    assert place.lab.log(job) == f"{line}\ntwo\n"
    assert "code_changed main.sh" in place.lab.ok("show", str(job))
    rerun = place.run("-C", str(repository.folder), "sh main.sh")["id"]
    assert place.lab.log(rerun) == "two\n"


def test_names_that_are_not_utf8_reach_the_job(place: Place) -> None:
    name = b"caf\xe9"
    folder = os.path.join(os.fsencode(place.lab.folder), name + str(len(place.on)).encode())
    os.mkdir(folder)
    words: list[str | bytes] = ["submit", "-q", *place.on, b"--name", name, b"--", b"sh", b"-c"]
    words += [b'printf %s "$STOKER_JOB_NAME" > "$1"', b"x", folder + b"/f\xff"]
    done = place.lab.run(*words)
    assert done.returncode == 0, done.stderr
    assert place.finished(int(done.stdout))["state"] == "done"
    with open(folder + b"/f\xff", "rb") as file:
        assert file.read() == name


def test_lines_of_a_file_run_once_each(place: Place) -> None:
    path = place.lab.folder / "lines"
    jobs = place.submit_lines(
        [f'echo "{number} $STOKER_JOB_ID" >> {path}' for number in range(300)]
    )
    assert place.lab.wait(*jobs) == 0
    ran = [line.split() for line in path.read_text().splitlines()]
    assert sorted((int(number), int(job)) for number, job in ran) == list(enumerate(jobs))


def test_removed_job_leaves_no_files(place: Place) -> None:
    job = place.submit('mkdir -p "$STOKER_OUTPUT_DIR"; echo x | tee "$STOKER_OUTPUT_DIR/file"')
    found = place.finished(job)
    log = Path(found["stdout"])
    assert log.exists()
    place.lab.ok("rm", str(job))
    assert not log.exists()
    assert not (log.parent / str(job)).exists()


# -- sweeps and functions ------------------------------------------------------------------------


def test_grid_sweep_runs_every_point(place: Place) -> None:
    path = place.lab.folder / "grid"
    words = ("sweep", "-q", *place.on, "a=1,2,3", "b=x,y", "--")
    place.lab.ok(*words, "sh", "-c", f"echo {{a}}{{b}} >> {path}")
    wait_until(lambda: path.exists() and len(path.read_text().split()) == 6, "all trials")
    assert sorted(path.read_text().split()) == ["1x", "1y", "2x", "2y", "3x", "3y"]


def test_adaptive_sweep_learns_from_its_trials(place: Place) -> None:
    name = f"search{len(place.on)}"
    search = ("--method", "tpe", "--metric", "y:min", "--trials", "4", "--max-parallel", "2")
    command = "echo stoker: y={x}"
    place.lab.ok("sweep", "-n", name, *place.on, *search, command, "x=interval(0,1)")
    rows: list[dict[str, Any]] = []

    def all_done() -> bool:
        shown = place.lab.run("results", name, "--json").stdout  # no trials at first
        rows[:] = json.loads(shown).get("rows", [])
        return [row["state"] for row in rows] == ["done"] * 4

    wait_until(all_done, "all trials")
    assert all(row["y"] == row["x"] for row in rows)


def test_outputs_and_checkpoints_of_trials_are_found(place: Place) -> None:
    name = f"outputs{len(place.on)}"
    command = (
        "echo {x} > $STOKER_OUTPUT_DIR/m; echo {x} > {dir}/d; mkdir -p $STOKER_CHECKPOINT_DIR;"
        " echo {x} > $STOKER_CHECKPOINT_DIR/c"
    )
    place.lab.ok("sweep", "-q", "-n", name, *place.on, command, "x=1,2")
    place.lab.ok("wait", "-q", f"sweep:{name}")
    check_trial_files(place.lab, name)


_FUNCTION = """
import os, stoker

@stoker.job(gpus=1)
def square(number):
    return number * number, os.environ["STOKER_JOB_ID"], os.environ["CUDA_VISIBLE_DEVICES"]

@stoker.job(gpus=1)
def fail():
    raise ValueError("no luck")

if __name__ == "__main__":
    job, failed = square.options(**options).submit(7), fail.options(**options).submit()
    print(*job.result(), job.id)
    try:
        failed.result()
    except ValueError as error:
        print(error)
"""


def test_python_function_returns_its_value_or_raises(place: Place) -> None:
    options = {"on": place.on[1]} if place.on else {}
    path = place.lab.folder / f"function{len(place.on)}.py"
    path.write_text(f"options = {options!r}\n{_FUNCTION}")
    done = subprocess.run(
        [sys.executable, str(path)],
        env=place.lab.env, cwd=place.lab.folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    value, inner, gpus, job, error = done.stdout.split(maxsplit=4)
    assert (value, inner, error) == ("49", job, "no luck\n")
    assert gpus.isdigit()
