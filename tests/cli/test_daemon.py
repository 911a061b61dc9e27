"""`stoker daemon`: start, stop, drain, resume, status; there is never more than one daemon."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

from stoker.engine.daemon.wake import CHANGES_SOCKET
from stoker.engine.supervisor.sockets import connect
from tests.cli.helpers import as_json, refused
from tests.helpers import Gate
from tests.lab import Lab


def test_start_and_stop_print_their_effect(lab: Lab) -> None:
    started = lab.ok("daemon", "start")
    pid = lab.daemon_pid()
    assert started == f"daemon started (pid {pid})\n"
    assert lab.ok("daemon", "start") == f"daemon is already running (pid {pid})\n"
    assert lab.ok("daemon", "stop") == "daemon stopped\n"
    assert lab.daemon_pid() is None
    assert lab.ok("daemon", "stop") == "no daemon is running\n"


def test_daemon_status_prints_pids_and_paths(lab: Lab) -> None:
    done = lab.run("daemon", "status")
    assert (done.returncode, done.stdout) == (
        1,
        "no daemon is running; the next `stoker submit` starts one\n"
        "boot    not started after a reboot; `stoker daemon enable` changes that\n",
    )
    assert as_json(lab.run("daemon", "--json").stdout)["running"] is False
    lab.ok("daemon", "start")
    assert lab.ok("daemon", "status") == (
        f"daemon is running (pid {lab.daemon_pid()}, runner {lab.runner_pid()})\n"
        f"state   {lab.state_dir}\n"
        f"log     {lab.state_dir}/daemon.log\n"
        f"python  Python {platform.python_version()} at {sys.executable}\n"
        "boot    not started after a reboot; `stoker daemon enable` changes that\n"
    )
    facts = as_json(lab.ok("daemon", "status", "--json"))
    assert (facts["pid"], facts["runner_pid"]) == (lab.daemon_pid(), lab.runner_pid())
    assert (facts["running"], facts["draining"]) == (True, False)


def test_jobs_continue_without_daemon_and_their_results_are_recorded(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit(f"{gate.wait}; exit 6")
    (pid,) = gate.wait_for()
    assert lab.ok("daemon", "stop") == "daemon stopped; 1 job continues to run\n"
    os.kill(pid, 0)
    gate.open()
    assert lab.wait(job) == 6


def test_daemon_stop_with_cancel_ends_running_jobs(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit(gate.wait)
    gate.wait_for()
    waiting = lab.submit("-G2", "true")
    assert lab.ok("daemon", "stop", "--cancel") == "daemon stopped\n"
    assert lab.states() == {job: "cancelled", waiting: "queued"}
    assert lab.processes() == []
    lab.ok("daemon", "start")
    assert lab.wait(waiting) == 0


def test_drain_lets_running_jobs_finish_and_starts_no_more(lab: Lab) -> None:
    gate = Gate(lab.folder)
    running = lab.submit(gate.wait)
    gate.wait_for()
    lab.wait_until(lambda: lab.state(running) == "running")
    drained = lab.run("daemon", "drain")
    assert (drained.stdout, drained.stderr) == ("", "no more jobs start; 1 job still running\n")
    waiting = lab.submit("true")
    gate.open()
    assert lab.wait(running) == 0
    assert lab.state(waiting) == "queued"
    assert "drained: no job starts before `stoker daemon resume`\n" in lab.ok("daemon", "status")
    lab.ok("daemon", "stop")
    assert as_json(lab.ok("daemon", "drain", "--json")) == {
        "schema": 2, "draining": True, "running": 0,
    }  # fmt: skip
    lab.ok("daemon", "start")
    assert lab.state(waiting) == "queued"
    assert lab.run("daemon", "resume").stderr == "resumed: jobs start again\n"
    assert lab.wait(waiting) == 0


def test_error_for_an_unknown_action_lists_the_actions(lab: Lab) -> None:
    for words in (["again"], ["start", "stop"]):
        refused(
            lab.run("daemon", *words),
            2,
            f"`{' '.join(words)}` is not an action of `stoker daemon`",
            "actions: start, stop, restart, status, drain, resume, run, enable, disable",
        )


def test_client_that_disconnects_before_the_greeting_is_ignored(lab: Lab) -> None:
    lab.ok("daemon", "start")
    pid = lab.daemon_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    connect(str(lab.state_dir), CHANGES_SOCKET).close()
    os.kill(pid, signal.SIGCONT)
    assert lab.wait(lab.submit("true")) == 0
    assert lab.daemon_pid() == pid


def test_modules_in_the_current_folder_are_not_imported(lab: Lab) -> None:
    for name in ("json", "signal", "socket", "select", "sqlite3", "queue", "random"):
        (lab.folder / f"{name}.py").write_text("raise SystemExit('not the module you want')")
    script = Path(sys.executable).with_name("stoker")
    done = subprocess.run([script, "submit", "-q", "pwd"], cwd=lab.folder, env=lab.env)
    assert done.returncode == 0
    assert lab.run("wait", cwd=Path("/")).returncode == 0
    done = subprocess.run([script, "run", "-q", "true"], cwd=lab.folder, env=lab.env)
    assert done.returncode == 0


def test_exactly_one_of_twenty_daemons_started_at_once_keeps_running(lab: Lab) -> None:
    daemons = [lab.popen("daemon", "run") for _ in range(20)]
    lab.wait_until(lambda: sum(one.poll() is None for one in daemons) == 1)
    (winner,) = [one for one in daemons if one.returncode is None]
    lab.wait_until(lambda: lab.daemon_pid() == winner.pid)
    for loser in daemons:
        if loser is not winner:
            _, errors = loser.communicate()
            assert loser.returncode == 1
            assert errors.startswith("error: a daemon is already running (pid ")
            assert errors.count("\n") == 1
    job = lab.submit("true")
    assert lab.wait(job) == 0
    winner.send_signal(signal.SIGTERM)
    winner.communicate()
    assert winner.returncode == 0


def test_thirty_first_submits_at_once_start_one_daemon_and_lose_no_job(lab: Lab) -> None:
    clients = [lab.popen("submit", "-q", "-G0", f"echo {n}") for n in range(30)]
    ids = []
    for client in clients:
        out, errors = client.communicate()
        assert client.returncode == 0, errors
        ids.append(int(out))
    assert sorted(ids) == list(range(1, 31))
    assert lab.wait() == 0
    outputs = {int(lab.log(job)) for job in ids[:3]}
    assert len(outputs) == 3
    assert set(lab.states().values()) == {"done"}


def test_thirty_clients_that_submit_and_cancel_at_once_lose_no_update(lab: Lab) -> None:
    """Clients cancel held jobs, submit new ones and add tags; every change must be stored."""
    lab.ok("submit", "--hold", "-f", "-", input="true\n" * 30)
    script = (
        "$STOKER cancel $N && $STOKER submit -q --hold -n fresh$N true && "
        "$STOKER tag 1 +t$N && $STOKER priority $N fresh$N"
    )
    clients = [
        subprocess.Popen(
            ["sh", "-c", script],
            env={**lab.env, "N": str(n), "STOKER": "python -m stoker",
                 "PATH": f"{os.path.dirname(sys.executable)}:{lab.env['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(1, 31)
    ]  # fmt: skip
    for client in clients:
        _, errors = client.communicate()
        assert client.returncode == 0, errors
    states = lab.states()
    assert [states[job] for job in range(1, 31)] == ["cancelled"] * 30
    jobs = as_json(lab.ok("ls", "--json", "--state", "held"))["jobs"]
    assert sorted(job["name"] for job in jobs) == sorted(f"fresh{n}" for n in range(1, 31))
    assert all(job["priority"] == int(job["name"].removeprefix("fresh")) for job in jobs)
    assert sorted(lab.job(1)["tags"]) == sorted(f"t{n}" for n in range(1, 31))
