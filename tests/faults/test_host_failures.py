"""The host runs out of resources, or behaves unexpectedly: rows 26-29, 33, 42-44, 53-55."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from stoker.engine.supervisor.journal import Journal, read_journal
from stoker.engine.supervisor.logs import cap_log
from tests.lab import Lab
from tests.mounts import needs_mount


def test_process_that_holds_the_write_lock_stops_starts_but_not_supervision(lab: Lab) -> None:
    """A client that was suspended during a write holds the lock."""
    go = lab.folder / "go"
    job = lab.submit(f"while [ ! -e {go} ]; do sleep 0.02; done; exit 7")
    lab.wait_until(lambda: lab.state(job) == "running")
    blocker = sqlite3.connect(lab.state_dir / "queue.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    go.touch()
    lab.wait_until(lambda: not lab.processes())
    assert lab.state(job) == "running"  # received, not yet recorded
    blocker.execute("ROLLBACK")
    blocker.close()
    assert lab.wait(job) == 7


@needs_mount
def test_full_disk_refuses_submits_keeps_exit_codes_and_recovers(
    new_lab: Callable[..., Lab],
) -> None:
    """Rows 26 and 27, on a small file system in a mount namespace."""
    lab = new_lab(devices=1)
    script = Path(__file__).parent / "full_disk.py"
    small = lab.folder / "small"
    small.mkdir()
    done = subprocess.run(
        ["unshare", "-m", sys.executable, str(script), str(small)],
        env=lab.env | {"PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_journal_records_ends_on_a_full_disk(tmp_path: Path) -> None:
    """Their space was allocated when the segment was created."""
    from stoker.engine.model import Outcome

    journal = Journal(str(tmp_path))
    size = os.stat(tmp_path / "journal-1").st_size
    for attempt in range(1000):
        journal.ended(Outcome(attempt, 0, 1.0))
    assert os.stat(tmp_path / "journal-1").st_size == size
    assert len(list(read_journal(str(tmp_path)))) == 1000


def test_incomplete_journal_line_is_ignored(tmp_path: Path) -> None:
    from stoker.engine.model import Outcome

    journal = Journal(str(tmp_path))
    journal.ended(Outcome(1, 0, 1.0))
    with open(tmp_path / "journal-1", "r+b") as file:
        content = file.read().rstrip(b"\0")
        file.seek(len(content))
        file.write(b"ended 2 0 1.0 0.0")
    assert [record.attempt for record in read_journal(str(tmp_path))] == [1]


def test_flooded_log_keeps_start_and_end_and_frees_the_middle(tmp_path: Path) -> None:
    """Row 42."""
    log = tmp_path / "log"
    with open(log, "wb") as file:
        for number in range(200_000):
            file.write(b"line %06d of a flood\n" % number)
    before = os.stat(log).st_size
    cap_log(str(log), 1 << 20)
    after = os.stat(log)
    assert after.st_size == before
    assert after.st_blocks * 512 <= (1 << 20) + 65536
    data = log.read_bytes()
    assert data.startswith(b"line 000000") and data.endswith(b"line 199999 of a flood\n")


def test_log_of_a_running_job_stays_within_the_limit_and_can_be_read(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab(devices=1, STOKER_LOG_LIMIT="1M")
    go = lab.folder / "go"
    job = lab.submit(
        f"yes flood | head -c 30000000; while [ ! -e {go} ]; do sleep 0.05; done; echo end"
    )
    path = lab.folder / "state" / "jobs" / "0" / f"{job}-1.log"
    lab.wait_until(lambda: path.exists() and path.stat().st_size >= 30_000_000)
    lab.wait_until(lambda: path.stat().st_blocks * 512 <= (1 << 20) + 65536)
    go.touch()
    assert lab.wait(job) == 0
    text = lab.log(job)
    assert "dropped" in text and text.endswith("end\n") and len(text) < 2_000_000


def test_missing_program_folder_or_interpreter_is_a_start_failure(lab: Lab) -> None:
    """Row 53: detected at the start, not guessed from exit code 127."""
    away = lab.folder / "away"
    away.mkdir()
    script = lab.folder / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    held = lab.submit("--hold", "--cwd", str(away), "true")
    away.rmdir()
    lab.ok("release", str(held))
    for job in (held, lab.submit("no-such-program --x"), lab.submit("--", str(script))):
        lab.wait(job)
        assert lab.job(job)["cause"] == "start_failed", lab.job(job)
        assert lab.job(job)["detail"]
    assert lab.wait(held) == 126


def test_script_without_an_interpreter_line_runs_as_in_a_shell(lab: Lab) -> None:
    script = lab.folder / "script"
    script.write_text("echo from $0 with $1\n")
    script.chmod(0o755)
    job = lab.submit("--", "./script", "word")
    assert lab.wait(job) == 0
    assert lab.log(job) == "from ./script with word\n"


def test_very_short_jobs_have_correct_exit_codes_and_do_not_stay_running(lab: Lab) -> None:
    """Row 54."""
    lines = "\n".join(f"exit {number % 5}" for number in range(100))
    ids = [int(line) for line in lab.ok("submit", "-q", "--file", "-", input=lines).split()]
    lab.wait()
    for number, id in enumerate(ids[:20]):
        assert lab.job(id)["exit_code"] == number % 5
    assert set(lab.states().values()) == {"done", "failed"}


def test_always_failing_job_backs_off_and_does_not_starve_others(
    new_lab: Callable[..., Lab],
) -> None:
    """Row 55."""
    lab = new_lab(devices=1, STOKER_RETRY_DELAY="0.05")
    bad = lab.submit("--retries", "3", "exit 9")
    good = lab.submit("true")
    assert lab.wait(good) == 0
    assert lab.wait(bad) == 9
    assert lab.job(bad)["attempts"] == 4


def test_job_waits_and_counts_no_attempt_while_no_process_can_be_started(
    new_lab: Callable[..., Lab],
) -> None:
    """Row 44: the runner has no free file descriptors."""
    lab = new_lab(devices=1)
    assert lab.wait(lab.submit("true")) == 0
    runner = lab.runner_pid()
    assert runner
    subprocess.run(["prlimit", f"--pid={runner}", "--nofile=0:4096"], check=True)
    job = lab.submit("exit 3")
    lab.wait_until(lambda: "could not start" in (lab.state_dir / "daemon.log").read_text())
    assert lab.job(job)["attempts"] <= 1
    subprocess.run(["prlimit", f"--pid={runner}", "--nofile=1024:4096"], check=True)
    assert lab.wait(job) == 3
    assert lab.job(job)["attempts"] == 1
