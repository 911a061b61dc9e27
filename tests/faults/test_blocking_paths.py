"""Paths on which `open` would block affect neither other jobs nor commands."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab import Lab

SPECIAL = ("fifo", "socket", "/dev/zero", "/dev/full", "folder")


def make_special(folder: Path, kind: str) -> Path:
    path = folder / kind.strip("/").replace("/", "-")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(kind)
    return path


@pytest.mark.parametrize("kind", SPECIAL)
def test_submit_refuses_an_output_that_is_not_a_regular_file(lab: Lab, kind: str) -> None:
    path = make_special(lab.folder, kind)
    for option in ("-o", "--stderr"):
        done = lab.run("submit", option, str(path), "true")
        assert done.returncode == 2
        assert f"cannot write the output of a job to `{path}`: it is a" in done.stderr
        assert "hint: give the path of a regular file, or /dev/null" in done.stderr


@pytest.mark.parametrize("kind", SPECIAL)
def test_start_refuses_an_output_that_became_a_special_file(lab: Lab, kind: str) -> None:
    path = make_special(lab.folder, kind)
    for option in ("-o", "--stderr"):
        name = lab.folder / f"out{option}"
        job = lab.submit("--hold", option, str(name), "true")
        name.symlink_to(path)
        lab.ok("release", str(job))
        assert lab.wait(job) == 126
        assert lab.job(job)["cause"] == "start_failed"
        assert str(name) in lab.job(job)["detail"]
    assert lab.wait(lab.submit("exit 4")) == 4


def test_fifo_with_a_reader_is_refused_at_the_start_too(lab: Lab) -> None:
    path = lab.folder / "out"
    job = lab.submit("--hold", "-o", str(path), "true")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        lab.ok("release", str(job))
        assert lab.wait(job) == 126
        assert "it is a FIFO, not a regular file" in lab.job(job)["detail"]
    finally:
        os.close(reader)


def test_output_to_dev_null_is_allowed(lab: Lab) -> None:
    assert lab.wait(lab.submit("-o", "/dev/null", "--stderr", "/dev/null", "echo x; exit 3")) == 3


def test_job_gets_a_blocking_stdout_and_the_first_attempt_truncates_it(lab: Lab) -> None:
    path = lab.folder / "out"
    path.write_text("of an earlier run\n")
    code = "import fcntl, os; print(fcntl.fcntl(1, fcntl.F_GETFL) & os.O_NONBLOCK)"
    job = lab.submit("-o", str(path), "--", sys.executable, "-c", code)
    assert lab.wait(job) == 0
    assert path.read_text() == "0\n"


def test_log_of_a_job_whose_output_became_a_fifo_is_an_error(lab: Lab) -> None:
    path = lab.folder / "out"
    job = lab.submit("-o", str(path), "echo x")
    assert lab.wait(job) == 0
    path.unlink()
    os.mkfifo(path)
    for args in (("log",), ("log", "-f"), ("log", "--json")):
        done = lab.run(*args, str(job))
        assert done.returncode == 1, done
        assert "it is a FIFO, not a regular file" in done.stderr + done.stdout
    lab.ok("show", str(job))


@pytest.mark.parametrize("kind", ("fifo", "/dev/zero"))
def test_endless_metrics_and_progress_files_block_no_command(lab: Lab, kind: str) -> None:
    path = make_special(lab.folder, kind)
    links = "; ".join(f'ln -s {path} "$STOKER_{name}"' for name in ("METRICS", "PROGRESS_FILE"))
    job = lab.submit(f"{links}; exit 3")
    assert lab.wait(job) == 3
    assert os.path.islink(lab.state_dir / "jobs" / "0" / f"{job}.metrics.jsonl")
    lab.ok("results", str(job))
    for args in (("ls", "--state", "all"), ("show", str(job)), ("rm", str(job))):
        lab.ok(*args)
    assert lab.wait(lab.submit("exit 4")) == 4


def test_foreground_run_refuses_a_fifo_as_output_and_runs_the_rest(lab: Lab) -> None:
    os.mkfifo(lab.folder / "fifo")
    (lab.folder / "jobs").write_text("true #stoker -o fifo\n")
    done = lab.run("run", "jobs")
    assert done.returncode == 2 and "it is a FIFO" in done.stderr, done
    (lab.folder / "jobs").write_text("mkfifo late\ntrue #stoker -o late\necho after > after\n")
    done = lab.run("run", "jobs", STOKER_DEVICES="1")
    assert done.returncode == 1 and "it is a FIFO, not a regular file" in done.stderr, done
    assert (lab.folder / "after").read_text() == "after\n"


def test_job_file_may_be_a_fifo(lab: Lab) -> None:
    shell = " ".join(lab.command)
    done = subprocess.run(
        ["bash", "-c", f"{shell} submit -q --file <(printf 'exit 3\\nexit 4\\n')"],
        env=lab.env, cwd=lab.folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.split() == ["1", "2"], done
    assert lab.wait(2) == 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="the kernel has no FUSE")
def test_file_system_that_hangs_blocks_only_the_jobs_on_it(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab(devices=1)
    script = Path(__file__).parent / "hung_mount.py"
    inner = lab.folder / "inner"
    inner.mkdir()
    done = subprocess.run(
        ["unshare", "-m", sys.executable, str(script), str(inner)],
        env=lab.env | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
