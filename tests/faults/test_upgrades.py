"""Queue and daemon are of different releases: no client migrates under a running daemon."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.engine.store import upgrades
from stoker.engine.store.database import SCHEMA_VERSION, open_database
from stoker.engine.supervisor import locks
from stoker.errors import Unavailable, Upgraded
from tests.cli.helpers import as_json
from tests.engine.store.older_schema import OLDER, REGISTER, STEP, an_older_queue
from tests.helpers import Gate
from tests.lab import Lab


def schema_of(folder: Path) -> int:
    connection = sqlite3.connect(folder / "queue.db")
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()


def set_schema(folder: Path, version: int) -> None:
    connection = sqlite3.connect(folder / "queue.db")
    connection.execute(f"PRAGMA user_version={version}")
    connection.close()


@pytest.fixture
def old_queue(new_lab: Callable[..., Lab], tmp_path: Path) -> Lab:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(REGISTER)
    lab = new_lab(PYTHONPATH=str(site))
    lab.state_dir.mkdir(mode=0o700)
    an_older_queue(lab.state_dir)
    connection = sqlite3.connect(lab.state_dir / "queue.db")
    connection.execute("INSERT INTO meta VALUES ('daemon_version', '0.0.9')")
    connection.execute("UPDATE jobs SET state = 'held', ready = 0")
    connection.commit()
    connection.close()
    return lab


def test_client_does_not_migrate_under_an_older_daemon(old_queue: Lab) -> None:
    lock = locks.take(str(old_queue.state_dir), locks.DAEMON_LOCK)  # as the older daemon does
    before = (old_queue.state_dir / "queue.db").read_bytes()
    for args in (["ls"], ["submit", "true"], ["status"], ["why", "1"]):
        done = old_queue.run(*args)
        assert (done.returncode, done.stdout) == (69, ""), done
        assert done.stderr == (
            f"error: the running daemon (version 0.0.9, pid {os.getpid()}) is older than this"
            " command\nhint: stoker daemon restart   (running jobs continue; nothing was changed)\n"
        )
    assert schema_of(old_queue.state_dir) == OLDER
    assert (old_queue.state_dir / "queue.db").read_bytes() == before
    found = as_json(old_queue.run("doctor", "--json").stdout)["findings"]
    assert any("is older than this command" in one["what"] for one in found)
    os.close(lock)
    old_queue.ok("ls")
    assert len(old_queue.states()) == 3
    assert schema_of(old_queue.state_dir) == SCHEMA_VERSION


def test_results_do_not_migrate_under_an_older_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(upgrades.STEPS, OLDER, STEP)
    an_older_queue(tmp_path)
    lock = locks.take(str(tmp_path), locks.RUN_LOCK)
    with pytest.raises(Unavailable, match="a `stoker run` of an older release"):
        open_database(str(tmp_path))
    assert schema_of(tmp_path) == OLDER
    os.close(lock)
    open_database(str(tmp_path)).close()


def test_ten_clients_at_once_migrate_once_and_all_succeed(old_queue: Lab) -> None:
    clients = [old_queue.popen("ls", "--json", "--state", "all") for _ in range(10)]
    for client in clients:
        out, errors = client.communicate()
        assert client.returncode == 0, errors
        assert len(as_json(out)["jobs"]) == 3
    assert schema_of(old_queue.state_dir) == SCHEMA_VERSION


def test_migration_that_dies_at_any_statement_leaves_the_old_schema(old_queue: Lab) -> None:
    for nth in (1, 2, 3, 4):
        point = f"migrate.between_statements:{nth}"
        died = old_queue.run("ls", STOKER_FAILPOINT=point)
        assert died.returncode == -9
        assert schema_of(old_queue.state_dir) == OLDER
    connection = sqlite3.connect(old_queue.state_dir / "queue.db")
    connection.execute("SELECT * FROM speeds")
    connection.close()
    assert len(old_queue.states()) == 3


def test_daemon_migrates_when_it_starts_and_clients_wait_for_it(old_queue: Lab) -> None:
    starting = old_queue.popen("daemon", "start")
    listing = old_queue.popen("ls", "--json", "--state", "all")
    for client in (starting, listing):
        out, errors = client.communicate()
        assert client.returncode == 0, out + errors
    assert schema_of(old_queue.state_dir) == SCHEMA_VERSION


def test_daemon_exits_after_a_migration_by_a_newer_release_and_jobs_continue(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit(f"{gate.wait}; exit 5")
    gate.wait_for()
    pid = lab.daemon_pid()
    set_schema(lab.state_dir, 99)
    lab.wait_until(lambda: lab.daemon_pid() != pid, what="the daemon to exit")
    log = lab.state_dir / "daemon.log"
    lab.wait_until(lambda: "was upgraded by a newer Stoker (schema 99)" in log.read_text())
    assert "Traceback" not in log.read_text()
    set_schema(lab.state_dir, SCHEMA_VERSION)
    lab.ok("daemon", "start")
    gate.open()
    assert lab.wait(job) == 5


def test_client_with_an_open_queue_writes_nothing_after_a_migration(tmp_path: Path) -> None:
    db = open_database(str(tmp_path))
    set_schema(tmp_path, 99)
    with pytest.raises(Upgraded, match="was upgraded by a newer Stoker"), db.transaction():
        pass
    set_schema(tmp_path, SCHEMA_VERSION)
    with db.transaction():
        pass
    db.close()


def test_restart_replaces_the_daemon_and_keeps_jobs(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit(f"{gate.wait}; exit 3")
    gate.wait_for()
    before, runner = lab.daemon_pid(), lab.runner_pid()
    output = lab.ok("daemon", "restart")
    assert output == f"daemon restarted (pid {lab.daemon_pid()})\n"
    assert lab.daemon_pid() not in (None, before)
    assert lab.runner_pid() == runner
    gate.open()
    assert lab.wait(job) == 3
    lab.ok("daemon", "stop")
    assert lab.ok("daemon", "restart") == f"daemon started (pid {lab.daemon_pid()})\n"


def test_restart_leaves_a_newer_daemon_alone(lab: Lab) -> None:
    lab.ok("daemon", "start")
    lab.ok("daemon", "stop")
    set_schema(lab.state_dir, 99)
    lock = locks.take(str(lab.state_dir), locks.DAEMON_LOCK)  # as the newer daemon does
    done = lab.run("daemon", "restart")  # SIGTERM would end this test
    assert done.returncode == 70
    assert "was written by a newer Stoker (schema 99" in done.stderr
    os.close(lock)


def test_stop_ends_the_restarts_of_the_runner(lab: Lab) -> None:
    """The runner keeps restarting a daemon that cannot start; `stop` must end that too."""
    gate = Gate(lab.folder)
    job = lab.submit(f"{gate.wait}; exit 5")
    gate.wait_for()
    pid, runner = lab.daemon_pid(), lab.runner_pid()
    set_schema(lab.state_dir, 99)  # so that every new daemon fails
    lab.wait_until(lambda: lab.daemon_pid() != pid)
    log = lab.state_dir / "daemon.log"
    lab.wait_until(lambda: "error: the queue in" in log.read_text(), what="a failed restart")
    output = lab.ok("daemon", "stop")
    assert output.startswith(
        f"no daemon is running, and the runner (pid {runner}) will not start on"
    )
    set_schema(lab.state_dir, SCHEMA_VERSION)
    connection = sqlite3.connect(lab.state_dir / "queue.db")
    connection.close()
    gate.open()
    lab.wait_until(lambda: lab.runner_pid() is None, what="a runner without work to exit")
    assert lab.daemon_pid() is None
    assert lab.wait(job) == 5


def test_doctor_names_suspended_processes(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit(gate.wait)
    gate.wait_for()
    runner, daemon = lab.runner_pid(), lab.daemon_pid()
    assert runner is not None and daemon is not None
    os.kill(runner, signal.SIGSTOP)
    done = lab.run("doctor")
    assert done.returncode == 1
    output = (
        f"bad   the runner (pid {runner}) is suspended: no job starts, and the end of no job"
        " is recorded\n"
        f"      hint: kill -CONT {runner}\n"
    )
    assert output in done.stdout
    assert as_json(lab.ok("daemon", "status", "--json"))["runner_stopped"] is True
    waiting = lab.submit("-G2", "true")
    assert f"`kill -CONT {runner}`" in lab.ok("why", str(waiting))
    os.kill(runner, signal.SIGCONT)
    os.kill(daemon, signal.SIGSTOP)
    assert f"      hint: kill -CONT {daemon}\n" in lab.run("doctor").stdout
    os.kill(daemon, signal.SIGCONT)
    gate.open()


def test_doctor_reports_waiting_jobs_without_a_daemon(lab: Lab) -> None:
    lab.submit("-G2", "sleep 100")
    lab.submit("-G2", "true")
    lab.ok("daemon", "drain")
    lab.ok("daemon", "stop")
    output = lab.run("doctor").stdout
    assert (
        "warn  no daemon is running, but 1 job is queued\n      hint: stoker daemon start" in output
    )
