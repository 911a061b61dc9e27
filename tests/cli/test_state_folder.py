"""State folders of other users, read-only, full or damaged."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import as_json, refused
from tests.helpers import Gate
from tests.lab import Lab
from tests.mounts import needs_mount

STOKER = f"{sys.executable} -m stoker"


def in_own_mounts(lab: Lab, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in its own mount namespace."""
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        env=lab.env, cwd=lab.folder, capture_output=True, text=True,
    )  # fmt: skip


def test_state_folder_that_others_can_enter_is_refused(lab: Lab) -> None:
    lab.state_dir.mkdir()
    for mode in (0o750, 0o770, 0o707, 0o755):
        lab.state_dir.chmod(mode)
        refused(
            lab.run("ls"),
            77,
            f"the state folder `{lab.state_dir}` is open to other users",
            "set STOKER_STATE_DIR to a private folder",
        )
    assert os.listdir(lab.state_dir) == []


def test_chmod_is_suggested_only_for_a_folder_with_a_queue(lab: Lab) -> None:
    """The folder could be /etc."""
    lab.submit("--hold", "true")
    lab.state_dir.chmod(0o755)
    message = f"the state folder `{lab.state_dir}` is open to other users"
    refused(lab.run("ls"), 77, message, f"chmod 700 {lab.state_dir}")
    lab.folder.chmod(0o755)
    lab.env["STOKER_STATE_DIR"] = str(lab.folder)
    message = f"the state folder `{lab.folder}` is open to other users"
    refused(lab.run("ls"), 77, message, "set STOKER_STATE_DIR to a private folder")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_state_folder_of_another_user_is_refused(lab: Lab) -> None:
    lab.state_dir.mkdir(0o700)
    os.chown(lab.state_dir, 12345, 12345)
    refused(
        lab.run("submit", "true"),
        77,
        f"the state folder `{lab.state_dir}` belongs to uid 12345, not to you",
        "set STOKER_STATE_DIR to a folder of your own",
    )


def test_file_in_place_of_the_state_folder_is_refused(lab: Lab) -> None:
    lab.state_dir.touch()
    refused(lab.run("ls"), 77, f"the state folder `{lab.state_dir}` is not a folder")
    inside = lab.state_dir / "inside"
    done = lab.run("ls", STOKER_STATE_DIR=str(inside))
    assert done.returncode == 77
    assert done.stderr.startswith(f"error: cannot use the state folder `{inside}`: ")


@needs_mount
def test_read_only_folder_can_be_read_and_not_changed(lab: Lab) -> None:
    lab.submit("--hold", "true")
    script = (
        "mount --bind state state && mount -o remount,ro,bind state && "
        f"{STOKER} ls && {STOKER} show 1 >/dev/null && {STOKER} submit --hold true; echo $?; "
        f"{STOKER} cancel 1; echo $?"
    )
    done = in_own_mounts(lab, script)
    header, row, submit, cancel = done.stdout.splitlines()
    assert (header.split()[0], row.split()[:2]) == ("ID", ["1", "held"])
    assert (submit, cancel) == ("77", "77")
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("error: the state folder `") for line in lines)
    assert all(line.endswith("` is read-only") for line in lines)
    assert lab.states() == {1: "held"}


@needs_mount
def test_read_only_folder_without_a_queue_is_refused(lab: Lab) -> None:
    lab.state_dir.mkdir(0o700)
    done = in_own_mounts(
        lab,
        f"mount --bind state state && mount -o remount,ro,bind state; {STOKER} submit true",
    )
    assert done.returncode == 77
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


@needs_mount
def test_full_disk_refuses_submits_until_there_is_space(lab: Lab) -> None:
    (lab.folder / "many").write_text(f": {'x' * 200}\n" * 20_000)
    lab.state_dir.mkdir()
    script = f"""
        mount -t tmpfs -o size=8m,mode=700 none state
        {STOKER} daemon start >&2 || exit 90
        {STOKER} submit -q --hold true || exit 91
        cat /dev/zero > state/filler 2>/dev/null
        {STOKER} submit -q --hold -f many; echo $?
        {STOKER} ls --json
        rm state/filler
        {STOKER} submit -q -G0 true; echo $?
        {STOKER} wait -q 2; echo $?
        {STOKER} daemon stop >&2
        kill $(cat state/runner.lock)
    """
    done = in_own_mounts(lab, script)
    first, full, listing, second, submitted, waited = done.stdout.splitlines()
    assert (first, full, second, submitted, waited) == ("1", "75", "2", "0", "0")
    assert [job["id"] for job in as_json(listing)["jobs"]] == [1]
    assert (
        f"\nerror: the disk that holds `{lab.state_dir}` is full; nothing was changed\n"
        "hint: free some space\n"
    ) in done.stderr


@needs_mount
def test_full_disk_without_a_daemon_is_reported(lab: Lab) -> None:
    lab.state_dir.mkdir()
    script = f"""
        mount -t tmpfs -o size=1m,mode=700 none state
        {STOKER} submit -q --hold true
        cat /dev/zero > state/filler 2>/dev/null
        {STOKER} submit -q --hold true; echo $?
        rm state/filler
        {STOKER} submit -q --hold true
    """
    done = in_own_mounts(lab, script)
    assert done.stdout.split() == ["1", "75", "2"]
    assert done.stderr.startswith(f"error: the disk that holds `{lab.state_dir}` ")
    assert "Traceback" not in done.stderr


def damage(lab: Lab) -> Path:
    """Wait for a snapshot, stop daemon and runner, and overwrite the database."""
    folder = lab.state_dir / "snapshots"
    lab.wait_until(lambda: folder.is_dir() and any(p.suffix == ".db" for p in folder.iterdir()))
    lab.ok("daemon", "stop")
    lab.kill_runner()
    path = lab.state_dir / "queue.db"
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    return path


DAMAGED = "`stoker doctor --repair` restores what is readable; the damaged files are kept"


def test_damaged_database_is_refused_and_repaired_from_the_snapshot(lab: Lab) -> None:
    lab.ok("daemon", "drain")
    lab.submit("--hold", "true")
    lab.submit("-n", "precious", "true")
    path = damage(lab)
    path.write_bytes(b"garbage " * 10_000)
    for words in (["ls"], ["submit", "true"], ["status"], ["daemon", "start"]):
        refused(lab.run(*words), 70,
                f"the queue's database in `{lab.state_dir}` is damaged (file is not a database)",
                DAMAGED)  # fmt: skip
    assert path.read_bytes() == b"garbage " * 10_000
    sick = lab.run("doctor")
    assert sick.returncode == 1
    assert f"      hint: {DAMAGED}\n" in sick.stdout
    said = lab.ok("doctor", "--repair")
    aside = said.splitlines()[0].removeprefix("the damaged files are in ")
    assert (Path(aside) / "queue.db").read_bytes() == b"garbage " * 10_000
    assert (
        "recovered 0 jobs from the damaged database\nrestored 2 jobs from the snapshot of " in said
    )
    assert "1 waiting job is held, because it may have run since its record was written" in said
    assert set(lab.states().values()) == {"held"}
    assert lab.job(2)["name"] == "precious"
    refused(lab.run("doctor", "--repair"), 1, "the database is intact; there is nothing to repair")
    assert lab.submit("--hold", "true") > 3  # ids assigned since the snapshot are not reused


def test_database_with_a_lost_page_is_refused(lab: Lab) -> None:
    lab.ok("submit", "--hold", "-f", "-", input="echo some job\n" * 2000)
    lab.ok("daemon", "start")
    path = damage(lab)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size // 2 // 4096 * 4096 - 1000)
    for words in (["ls", "-n", "2000"], ["submit", "--hold", "true"]):
        done = lab.run(*words)
        assert done.returncode == 70, done
        assert done.stderr.startswith(f"error: the queue's database in `{lab.state_dir}` is dama")
        assert done.stderr.endswith(f"hint: {DAMAGED}\n")
    assert as_json(lab.ok("doctor", "--repair", "--json"))["jobs"] == 2000
    assert len(lab.states()) == 2000


def test_repair_is_refused_while_a_daemon_runs(lab: Lab) -> None:
    lab.ok("daemon", "start")
    pid = lab.daemon_pid()
    refused(lab.run("doctor", "--repair"), 1, f"stop the daemon (pid {pid}) before a repair",
            "stoker daemon stop (running jobs continue)")  # fmt: skip


def test_queue_of_a_newer_stoker_is_left_untouched(lab: Lab) -> None:
    lab.submit("--hold", "true")
    path = lab.state_dir / "queue.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    before = path.read_bytes()
    done = lab.run("submit", "true")
    assert done.returncode == 70
    assert done.stderr.startswith(
        f"error: the queue in `{lab.state_dir}` was written by a newer Stoker (schema 99, "
    )
    assert done.stderr.endswith("hint: upgrade this Stoker; nothing was changed\n")
    assert lab.run("doctor", "--repair").stderr == done.stderr
    assert path.read_bytes() == before


def test_lost_database_is_not_replaced_by_a_new_queue(lab: Lab) -> None:
    lab.submit("-n", "precious", "--hold", "true")
    lab.wait(lab.submit("echo from the old one"))
    path = damage(lab)
    path.write_bytes(b"")
    for words in (["ls"], ["submit", "true"], ["status"], ["daemon", "start"]):
        done = lab.run(*words)
        assert (done.returncode, done.stdout) == (70, ""), done
        assert (
            "is empty or missing, but there was one before\nhint: `stoker doctor --r" in done.stderr
        )
    path.unlink()
    assert lab.run("ls").returncode == 70
    said = lab.ok("doctor", "--repair")
    assert "from the snapshot of " in said
    assert lab.job(1)["name"] == "precious"


def test_repair_without_a_snapshot_reuses_no_id(lab: Lab) -> None:
    lab.wait(lab.submit("echo from the old one"))
    path = damage(lab)
    path.write_bytes(b"")
    for snapshot in (lab.state_dir / "snapshots").iterdir():
        snapshot.unlink()
    said = lab.ok("doctor", "--repair")
    assert (
        "restored 1 job from the journal of the runner, without command; named `record-lost`\n"
        in said
    )
    assert "jobs submitted after the last known id may be missing as well\n" in said
    new = lab.submit("echo new")
    lab.wait(new)
    assert new > 1
    assert lab.log(new) == "new\n"


def test_log_dir_of_a_run_may_contain_other_files(lab: Lab) -> None:
    (lab.folder / "jobs").mkdir()
    (lab.folder / "jobs" / "mine").touch()
    lab.ok("run", "-l", ".", "--", "true")
    assert (lab.folder / "jobs" / "mine").exists()


def test_doctor_finds_no_problem_on_a_healthy_host(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    findings = as_json(lab.ok("doctor", "--json"))["findings"]
    assert {finding["level"] for finding in findings} <= {"ok", "warn"}
    text = lab.ok("doctor")
    assert f"ok    state folder {lab.state_dir} (" in text
    assert (
        f"ok    daemon (pid {lab.daemon_pid()}) and runner (pid {lab.runner_pid()}) are running"
        in text
    )
    assert "ok    2 GPUs: simulated\n" in text


def test_doctor_reports_an_unsafe_state_folder(lab: Lab) -> None:
    lab.state_dir.mkdir(0o755)
    lab.state_dir.chmod(0o755)
    done = lab.run("doctor")
    assert done.returncode == 1
    assert done.stdout.endswith(
        f"bad   the state folder `{lab.state_dir}` is open to other users\n"
        "      hint: set STOKER_STATE_DIR to a private folder\n"
    )
