"""Jobs in containers of a docker that is a fake, with a real daemon and real processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.engine.supervisor import process_tags
from stoker.engine.supervisor.job_processes import owner_of
from stoker.engine.supervisor.process_table import name_of
from tests.features.environments.fake_docker import FakeDocker
from tests.lab import Lab, wait_until

# The first line is out when the signal handler is set.
WAITS = 'trap "echo stopped; exit 9" TERM; echo ready; while :; do sleep 0.05; done'
IGNORES = 'trap "" TERM; echo ready; while :; do sleep 0.05; done'


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[FakeDocker]:
    with FakeDocker(tmp_path / "d") as fake:
        yield fake


@pytest.fixture
def lab(new_lab: Callable[..., Lab], docker: FakeDocker) -> Lab:
    return new_lab(devices=1, PATH=f"{docker.folder}:{os.environ['PATH']}")


def start(lab: Lab, *words: str) -> int:
    job = lab.submit("--container", "image", *words)
    lab.wait_until(lambda: "ready" in lab.run("log", str(job)).stdout)
    return job


def test_container_gets_the_folder_the_variables_and_the_exit_code(
    lab: Lab, docker: FakeDocker
) -> None:
    lab.env["OF_THE_SHELL"] = "1"
    text = "pwd; echo $STOKER_JOB_ID $SECRET $OF_THE_SHELL.; echo x > $STOKER_OUTPUT_DIR/f; exit 7"
    job = lab.submit("-E", "SECRET=a b\nc", "--container", "image", text)
    lab.wait(job)
    assert lab.log(job) == f"{lab.folder}\n{job} a b c .\n"
    assert lab.job(job)["exit_code"] == 7
    folder = Path(docker.environments[0]["STOKER_OUTPUT_DIR"])
    assert (folder / "f").stat().st_uid == os.getuid()
    assert not any("a b" in word for word in docker.calls[0]), "the value would be visible in ps"


def test_cancel_sends_sigterm_to_the_container(lab: Lab, docker: FakeDocker) -> None:
    job = start(lab, WAITS)
    lab.ok("cancel", str(job))
    lab.wait(job)
    assert (lab.state(job), lab.log(job).count("stopped")) == ("cancelled", 1)
    assert docker.running == []


def test_container_that_ignores_sigterm_is_removed_before_the_job_ends(
    lab: Lab, docker: FakeDocker
) -> None:
    job = start(lab, "--grace", "0.2", "-t", "1s", IGNORES)
    lab.wait(job)
    assert (lab.job(job)["cause"], docker.running) == ("time_limit", [])


def test_container_is_removed_if_its_client_is_killed(lab: Lab, docker: FakeDocker) -> None:
    job = start(lab, IGNORES)
    os.kill(lab.job(job)["pid"], signal.SIGKILL)
    lab.wait(job)
    assert (lab.job(job)["signal"], docker.running) == (signal.SIGKILL, [])


def test_container_is_removed_after_all_of_stoker_was_killed(lab: Lab, docker: FakeDocker) -> None:
    job = start(lab, IGNORES)
    pids = [lab.daemon_pid(), lab.runner_pid(), lab.job(job)["pid"]]
    for pid in pids:  # all at once, as the OOM killer does with a user session
        os.kill(pid or 0, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid or 0, signal.SIGKILL)
    lab.wait_until(lambda: lab.daemon_pid() is None)
    assert len(docker.running) == 1
    lab.ok("daemon", "start")
    lab.wait(job)
    assert docker.running == []
    assert lab.state(job) in ("failed", "lost")  # the kernel may still know how the client ended


def test_container_goes_on_while_daemon_and_runner_are_replaced(
    lab: Lab, docker: FakeDocker
) -> None:
    job = start(lab, WAITS)
    lab.kill_runner()
    lab.ok("cancel", str(job))
    lab.wait(job)
    assert (lab.state(job), lab.log(job).count("stopped")) == ("cancelled", 1)
    assert docker.running == []


def test_container_is_removed_after_a_foreground_run_was_killed(
    lab: Lab, docker: FakeDocker
) -> None:
    (lab.folder / "jobs.txt").write_text(f"{IGNORES}\n")
    process = lab.popen("run", "--container", "image", "jobs.txt")
    lab.wait_until(lambda: docker.running)
    process.kill()
    process.communicate()
    lab.wait_until(lambda: not docker.running)


@pytest.mark.parametrize(("parent", "attempt"), [("conmon", 7), ("other", None)])
def test_process_in_a_container_belongs_to_its_job(
    tmp_path: Path, parent: str, attempt: int | None
) -> None:
    """Otherwise its GPU memory would count as that of another process."""
    tag = process_tags.tag_of(0x1234, 7)
    (tmp_path / parent).symlink_to("/bin/sh")  # the parent of containers of podman
    text = f"STOKER_PROCESS_TAGS={tag:x} sleep 600 & echo $!; wait"
    engine = subprocess.Popen(
        [tmp_path / parent, "-c", text], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert engine.stdout is not None
        pid = int(engine.stdout.readline())
        wait_until(lambda: name_of(pid) == "sleep")
        assert owner_of(pid, 0x1234) == attempt
    finally:
        os.killpg(engine.pid, signal.SIGKILL)
        engine.communicate()


def test_missing_image_is_a_cause_of_its_own(lab: Lab) -> None:
    job = lab.submit("--container", "missing", "true")
    lab.wait(job)
    facts = lab.job(job)
    assert (facts["cause"], facts["exit_code"]) == ("container_failed", 125)
    assert facts["detail"] == "docker: Error response from daemon: no such image: missing."


def test_missing_program_in_a_container_is_reported(lab: Lab) -> None:
    job = lab.submit("--container", "image", "no-such-program", "x")
    lab.wait(job)
    assert (lab.job(job)["cause"], lab.job(job)["exit_code"]) == ("missing_program", 127)


def test_rerun_uses_the_same_container(lab: Lab, docker: FakeDocker) -> None:
    (lab.folder / "data").mkdir()
    job = lab.submit("--container", "image", "--mount", "data:/data:ro", "true")
    lab.wait(job)
    lab.ok("rerun", str(job))
    lab.wait()
    old, new = (lab.job(id) for id in (job, job + 1))
    assert old["mount"] == new["mount"] == [f"{lab.folder}/data:/data:ro"]
    first, second = docker.calls
    assert first[-4:] == second[-4:]


def test_host_without_an_engine_refuses_containers(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1, PATH="/none")
    done = lab.run("submit", "--container", "image", "true")
    assert done.returncode == 65
    assert "needs docker, podman, apptainer or singularity" in done.stderr


def test_apptainer_runs_the_command_with_signals_and_exit_code(
    new_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    """A fake that executes the command after the image, as apptainer does."""
    (tmp_path / "programs").mkdir()
    program = tmp_path / "programs" / "apptainer"
    program.write_text(
        '#!/bin/sh\nwhile [ "${1#*.sif}" = "$1" ]; do shift; done; shift\n'
        'unset STOKER_JOB_ID; export STOKER_JOB_ID="$APPTAINERENV_STOKER_JOB_ID"\nexec "$@"\n'
    )
    program.chmod(0o755)
    lab = new_lab(devices=1, PATH=f"{program.parent}:{os.environ['PATH']}")
    (lab.folder / "settings.toml").write_text('[container]\nengine = "apptainer"\n')
    assert "there is no image" in lab.run("submit", "--container", "gone.sif", "true").stderr
    (lab.folder / "a.sif").touch()
    job = lab.submit("--container", "a.sif", f"echo $STOKER_JOB_ID; {WAITS}")
    lab.wait_until(lambda: "ready" in lab.run("log", str(job)).stdout)
    lab.ok("cancel", str(job))
    lab.wait(job)
    facts = lab.job(job)
    assert (facts["state"], facts["exit_code"], facts["mount"]) == ("cancelled", 9, [])
    assert lab.log(job).startswith(f"{job}\nready\n")
