"""Test environment: a state folder with the real command and the real daemon.

lab = Lab(tmp_path, devices=2)
job = lab.submit("echo hello")
lab.wait_until(lambda: lab.state(job) == "done")
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.engine.supervisor import job_processes, kill_processes, locks
from stoker.engine.supervisor.job_cgroups import JobCgroups
from tests.command_server import CommandServer, Fork

if TYPE_CHECKING:
    from tests.helpers import Gate

# What takes this long will not happen any more. No test has a shorter time limit: a busy machine
# would exceed it. pytest's own limit ends processes that hang (`timeout` in pyproject.toml).
HANG_SECONDS = 200.0

STOKER = [sys.executable, "-m", "stoker"]
# Commands whose process is the parent of others, or has a terminal.
_OWN_PYTHON = [("run",), ("shell",), ("attach",), ("top",), ("web",), ("daemon",), ("box",)]
_commands = CommandServer("stoker.cli", "stoker.client", "stoker.engine.store", "stoker.engine")


class Lab:
    def __init__(self, folder: Path, devices: int | str | None = None, **env: str) -> None:
        self.command = STOKER
        self.forks = False  # see tests/command_server.py
        self.forked: list[Fork] = []  # commands that run in the background
        self._may_run = False  # whether processes of this lab may be running
        self.folder = folder
        self.state_dir = folder / "state"
        self.env = {
            key: value for key, value in os.environ.items() if not key.startswith("STOKER_")
        }
        self.env |= {
            "STOKER_STATE_DIR": str(self.state_dir),
            "STOKER_SETTINGS": str(folder / "settings.toml"),
            "SHELL": "/bin/sh",
            "NO_COLOR": "1",
            "STOKER_NVML": "0",  # do not use the GPUs of this host
            "STOKER_MPS_DIR": str(folder / "mps"),
            # Tests do not depend on the cores of this host, nor start more at once than it has.
            "STOKER_CORES": "64",
            "STOKER_CPU_SLOTS": str(len(os.sched_getaffinity(0))),
        }
        self.env.pop("CUDA_VISIBLE_DEVICES", None)
        if devices is not None:
            self.env["STOKER_DEVICES"] = str(devices)
        self.env |= env

    # -- the command line ----------------------------------------------------------------------

    def run(
        self,
        *args: str | bytes,
        input: str | bytes | None = None,
        cwd: Path | None = None,
        **env: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run a stoker command; its output as text, even if it is not valid UTF-8."""
        data = input.encode() if isinstance(input, str) else input
        env, cwd = {**self.env, **env}, cwd or self.folder
        can_fork = self.forks and self.command == STOKER and args[:1] not in _OWN_PYTHON
        done = _commands.run(args, env, cwd, data) if can_fork else None
        if done is None:
            done = subprocess.run(
                [*self.command, *args],
                input=data,
                stdin=subprocess.DEVNULL if data is None else None,
                capture_output=True,
                env=env,
                cwd=cwd,
            )
        self._may_run |= self.state_dir.exists()
        return subprocess.CompletedProcess(
            done.args,
            done.returncode,
            done.stdout.decode("utf-8", "surrogateescape"),
            done.stderr.decode("utf-8", "surrogateescape"),
        )

    def ok(self, *args: str, **kwargs: Any) -> str:
        """Run a command that must succeed; its stdout."""
        done = self.run(*args, **kwargs)
        assert done.returncode == 0, f"{args}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def popen(self, *args: str, **kwargs: Any) -> subprocess.Popen[str]:
        self._may_run = True
        env = {**self.env, **kwargs.pop("env", {})}
        return subprocess.Popen(
            [*self.command, *args],
            env=env,
            cwd=self.folder,
            text=True,
            stdout=kwargs.pop("stdout", subprocess.PIPE),
            stderr=kwargs.pop("stderr", subprocess.PIPE),
            **kwargs,
        )

    def submit(self, *args: str, **env: str) -> int:
        """Submit one job; its id."""
        return int(self.ok("submit", "-q", *args, **env))

    def job(self, id: int) -> dict[str, Any]:
        job: dict[str, Any] = json.loads(self.ok("show", str(id), "--json"))["jobs"][0]
        return job

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of the database: what tests poll, without the cost of a command."""
        if not (self.state_dir / "queue.db").exists():
            return []
        with closing(sqlite3.connect(self.state_dir / "queue.db")) as connection:
            return connection.execute(sql, values).fetchall()

    def state(self, id: int) -> str:
        return str(self.rows("SELECT state FROM jobs WHERE id = ?", id)[0][0])

    def states(self) -> dict[int, str]:
        return dict(self.rows("SELECT id, state FROM jobs"))

    def log(self, id: int) -> str:
        return self.ok("log", str(id))

    def wait(self, *ids: int) -> int:
        """Wait for jobs (all if no id is given); the exit code of `stoker wait`."""
        args = [str(id) for id in ids]
        return self.run("wait", "-q", *args).returncode

    # -- processes -----------------------------------------------------------------------------

    def daemon_pid(self) -> int | None:
        return locks.holder(str(self.state_dir), locks.DAEMON_LOCK)

    def runner_pid(self) -> int | None:
        return locks.holder(str(self.state_dir), locks.RUNNER_LOCK)

    def kill_daemon(self) -> None:
        self._kill(self.daemon_pid, signal.SIGKILL)

    def kill_runner(self) -> None:
        self._kill(self.runner_pid, signal.SIGKILL)

    def _kill(self, find: Callable[[], int | None], number: int) -> None:
        pid = find()
        if pid is None or pid <= 1:
            return
        try:
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass
        self.wait_until(lambda: find() != pid)

    def kill_helper(self, module: str) -> None:
        """Kill a helper process of the daemon, such as `sweep_driver`, if there is one."""
        for pid in job_processes.children(self.daemon_pid() or 0):
            try:
                if f".{module}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                continue

    def tag_base(self) -> int | None:
        """The base of the process tags of this lab's jobs."""
        path = self.state_dir / "queue.db"
        if not path.exists():
            return None
        connection = sqlite3.connect(path)
        try:
            row = connection.execute("SELECT value FROM meta WHERE key = 'tag'").fetchone()
        except (sqlite3.Error, UnicodeDecodeError):  # damaged; its text may not be UTF-8
            return None
        finally:
            connection.close()
        return None if row is None else int(row[0])

    def processes(self) -> list[int]:
        """PIDs of the running processes of this lab's jobs."""
        base = self.tag_base()
        return (
            [] if base is None else [process.pid for process in job_processes.all_processes(base)]
        )

    def close(self) -> None:
        """Kill all processes of this lab, even those that are just starting."""
        if not (self._may_run or self.forked or self.state_dir.exists()):
            return
        for fork in self.forked:
            fork.kill()
        # The runner is starting a daemon; the environment of a process cannot be read during exec.
        is_restarting = self.runner_pid() is not None and self.daemon_pid() is None
        while self.daemon_pid() is not None:  # SIGTERM: the runner would restart a killed daemon
            self._kill(self.daemon_pid, signal.SIGTERM)
        self._kill(self.runner_pid, signal.SIGKILL)
        has_run_jobs = (self.state_dir / locks.RUNNER_LOCK).exists()
        base = self.tag_base() if has_run_jobs else None
        if base is not None:
            kill_processes.kill_all(base, timeout=5)
            JobCgroups.load(str(self.state_dir)).close()
        killed: set[int] = set()
        scans = 20 if is_restarting else 1
        while scans:
            new = self._kill_by_environment() - killed
            killed |= new
            scans -= not new  # they may fork during the scan

    def _kill_by_environment(self) -> set[int]:
        """Kill the processes that were started for this state folder; returns their PIDs."""
        mark, killed = os.fsencode(f"STOKER_STATE_DIR={self.state_dir}\0"), set()
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and mark in Path(f"/proc/{entry}/environ").read_bytes():
                    os.kill(int(entry), signal.SIGKILL)
                    killed.add(int(entry))
            except OSError:
                continue
        return killed

    # -- waiting -------------------------------------------------------------------------------

    def wait_at(self, gate: Gate, count: int = 1) -> None:
        """Wait until this many jobs are at a gate, and the daemon has recorded their start."""
        gate.wait_for(count)
        self.wait_until(lambda: "starting" not in self.states().values())

    def wait_until(self, condition: Callable[[], object], what: str = "") -> None:
        wait_until(condition, what)


def wait_until(
    condition: Callable[[], object], what: str = "", seconds: float = HANG_SECONDS
) -> None:
    """Poll until the condition is true; fail with its last value."""
    deadline = time.monotonic() + seconds
    while True:
        begin = time.monotonic()
        value = condition()
        if value:
            return
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"still not true: {what or condition} ({value!r})")
        # The only sleep in tests that wait for other processes. A condition that runs a command
        # leaves the processor to the process that it waits for.
        time.sleep(min(0.5, max(0.01, 1.5 * (now - begin))))
