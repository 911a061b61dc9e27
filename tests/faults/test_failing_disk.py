"""A disk that cannot be written stops new starts, but not supervision, and loses no exit code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.engine.daemon.start import wake_daemon
from stoker.engine.model import Outcome
from stoker.engine.supervisor.journal import Journal, read_journal
from tests.lab import Lab, wait_until
from tests.mounts import needs_mount


def limit_writes(pid: int | None, size: str) -> None:
    """Limit the size of files that a process writes; with "0" every write fails."""
    subprocess.run(["prlimit", f"--pid={pid}", f"--fsize={size}:unlimited"], check=True)


def in_namespace(lab: Lab, script: str, *args: str) -> None:
    """Run a script of this folder in its own mount namespace."""
    inner = lab.folder / "inner"
    inner.mkdir()
    path = Path(__file__).parent / script
    done = subprocess.run(
        ["unshare", "-m", sys.executable, str(path), str(inner), *args],
        env=lab.env | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ends_are_kept_in_memory_until_the_disk_is_writable_again(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab(devices=2)
    go = lab.folder / "go"
    job = lab.submit(f"while [ ! -e {go} ]; do sleep 0.02; done; exit 7")
    limited = lab.submit("--time-limit", "1s", "--grace", "0.1", "sleep 600")
    waits = lab.submit("--gpus", "2", "exit 5")
    lab.wait_until(lambda: lab.state(job) == "running")
    processes = lab.daemon_pid(), lab.runner_pid()
    for pid in processes:
        limit_writes(pid, "0")
    go.touch()
    lab.wait_until(lambda: not lab.processes())
    lab.wait_until(lambda: "cannot" in lab.ok("why", str(waits)))
    assert "cannot" in lab.ok()
    assert (lab.daemon_pid(), lab.runner_pid()) == processes
    assert lab.state(job) == "running"
    for pid in processes:
        limit_writes(pid, "unlimited")
    assert lab.wait(job) == 7
    assert lab.wait(waits) == 5
    assert lab.job(limited)["cause"] == "time_limit"
    assert "cannot" not in lab.ok()


def test_new_daemon_waits_for_ends_that_only_the_runner_knows(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1)
    go = lab.folder / "go"
    job = lab.submit(f"while [ ! -e {go} ]; do sleep 0.02; done; exit 7")
    lab.wait_until(lambda: lab.state(job) == "running")
    runner = lab.runner_pid()
    limit_writes(runner, "0")
    go.touch()
    lab.wait_until(lambda: not lab.processes())
    # The next daemon inherits the limit and cannot write its log.
    lab.wait_until(lambda: "cannot be recorded" in (lab.state_dir / "daemon.log").read_text())
    first = lab.daemon_pid()
    lab.kill_daemon()
    lab.wait_until(lambda: lab.daemon_pid() not in (None, first))
    assert lab.state(job) == "running"
    limit_writes(runner, "unlimited")
    assert lab.wait(job) == 7


@pytest.mark.parametrize("point", ("runner.before_late_record", "runner.after_ended"))
def test_runner_that_dies_with_ends_in_memory_causes_no_wrong_exit_code(
    new_lab: Callable[..., Lab], point: str
) -> None:
    lab = new_lab(devices=1)
    once = lab.folder / "once"
    once.touch()
    lab.env |= {"STOKER_FAILPOINT": f"{point}:1", "STOKER_FAILPOINT_ONCE": str(once)}
    go = lab.folder / "go"
    job = lab.submit(f"while [ ! -e {go} ]; do sleep 0.02; done; exit 7")
    lab.wait_until(lambda: lab.state(job) == "running")
    runner = lab.runner_pid()
    limit_writes(runner, "0")
    go.touch()
    lab.wait_until(lambda: "cannot be recorded" in (lab.state_dir / "daemon.log").read_text())
    limit_writes(runner, "unlimited")
    lab.wait(job)
    assert not once.exists()
    found = lab.job(job)
    # Newer kernels still have the exit code.
    if point == "runner.after_ended" or found["cause"] != "lost":
        assert (found["cause"], found["exit_code"]) == ("exit", 7)
    assert lab.wait(lab.submit("exit 3")) == 3


def test_journal_record_that_failed_can_be_repeated(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    journal.record(Outcome(1, 0, 1.0))
    code = (
        "import resource, sys\n"
        "from stoker.engine.model import Outcome\n"
        "from stoker.engine.supervisor.journal import Journal\n"
        "journal = Journal(sys.argv[1])\n"
        "for attempt in (2, 3):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (60, -1))\n"  # truncates the line
        "    try:\n"
        "        journal.record(Outcome(attempt, 7, 1.0, 'exit', 0.0, 0.0, 0, 'x' * 60))\n"
        "        raise SystemExit('it was written')\n"
        "    except OSError:\n"
        "        pass\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))\n"
        "    if attempt == 3:\n"
        "        journal.record(Outcome(3, 0, 1.0))\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert [record.attempt for record in read_journal(str(tmp_path))] == [1, 3]


@needs_mount
@pytest.mark.skipif(not shutil.which("mkfs.ext4"), reason="mkfs.ext4 is not installed")
@pytest.mark.skipif(not os.path.exists("/sys/fs/ext4"), reason="the kernel has no ext4")
def test_daemon_and_runner_survive_a_read_only_disk_and_keep_supervising(
    new_lab: Callable[..., Lab],
) -> None:
    in_namespace(new_lab(), "read_only_disk.py", "6")


@needs_mount
def test_runner_that_cannot_start_is_retried_with_a_backoff(new_lab: Callable[..., Lab]) -> None:
    in_namespace(new_lab(), "no_inodes.py")


def test_cancel_stops_a_job_while_the_queue_cannot_be_written(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=2)
    job = lab.submit("--grace", "0.1", "sleep 600")
    waits = lab.submit("--gpus", "2", "true")
    lab.wait_until(lambda: lab.state(job) == "running")
    args = [*lab.command, "cancel"]
    wrapped = ["prlimit", "--fsize=0:unlimited", *args]
    done = subprocess.run([*wrapped, str(waits)], env=lab.env, capture_output=True, text=True)
    assert done.returncode in (75, 77), done  # a waiting job cannot be cancelled without a write
    done = subprocess.run([*wrapped, str(job)], env=lab.env, capture_output=True, text=True)
    assert done.returncode == 0, done
    lab.wait(job)
    assert lab.state(job) == "cancelled"
    assert lab.wait(waits) == 0


def test_doctor_json_names_the_problem(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1)
    assert lab.wait(lab.submit("true")) == 0
    daemon = lab.daemon_pid()
    limit_writes(daemon, "0")
    lab.submit("true")
    wait_until(lambda: "cannot write the queue" in lab.run("doctor").stdout)
    findings = json.loads(lab.run("doctor", "--json").stdout)["findings"]
    assert any("cannot write the queue" in one["what"] for one in findings)
    limit_writes(daemon, "unlimited")
    assert lab.wait(2) == 0
    assert "cannot write the queue" not in lab.run("doctor").stdout


def test_doctor_writes_to_the_disk(lab: Lab) -> None:
    """A disk that refuses writes is found although its mount is not marked as read-only."""
    assert lab.wait(lab.submit("true")) == 0  # the daemon has the database open
    command = f"ulimit -f 0; exec {sys.executable} -m stoker doctor"
    done = subprocess.run(["bash", "-c", command], env=lab.env, capture_output=True, text=True)
    assert "bad   cannot write to the state folder: File too large\n" in done.stdout, done
    assert done.returncode == 1
    assert not list(lab.state_dir.glob("doctor-*"))


@pytest.mark.parametrize("endings", [("-wal",), ("-wal", "-shm")], ids="+".join)
def test_daemon_starts_again_if_its_write_ahead_log_was_deleted(
    lab: Lab, endings: tuple[str, ...]
) -> None:
    """Nothing that was acknowledged is lost: before the deletion or after it."""
    before = lab.submit("--hold", "true")
    assert lab.wait(lab.submit("true")) == 0
    pid = lab.daemon_pid()
    for ending in endings:
        Path(f"{lab.state_dir}/queue.db{ending}").unlink()
    wake_daemon(str(lab.state_dir))  # as any event does
    lab.wait_until(lambda: lab.run("submit", "-q", "--dedupe", "a", "true").returncode == 0)
    lab.wait_until(lambda: lab.daemon_pid() not in (None, pid))
    assert lab.wait(lab.submit("true"), 3) == 0
    assert lab.states() == {before: "held", 2: "done", 3: "done", 4: "done"}
    assert "queue.db-wal` was deleted or replaced" in (lab.state_dir / "daemon.log").read_text()
    assert "database intact" in lab.run("doctor").stdout
