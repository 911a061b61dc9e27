"""A laboratory: one state folder, the real command, the real daemon, and no sleeping.

lab = Lab(tmp_path, devices=2)
job = lab.submit("echo hello")
lab.wait_until(lambda: lab.state(job) == "done")
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stoker.supervisor import job_processes, kill_processes, locks
from stoker.supervisor.job_cgroups import JobCgroups


class Lab:
    def __init__(self, folder: Path, devices: int | str | None = None, **env: str) -> None:
        self.command = [sys.executable, "-m", "stoker"]
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
            "STOKER_NVML": "0",  # whatever this host has
        }
        self.env.pop("CUDA_VISIBLE_DEVICES", None)
        if devices is not None:
            self.env["STOKER_DEVICES"] = str(devices)
        self.env |= env

    # -- the command line ----------------------------------------------------------------------

    def run(
        self,
        *words: str | bytes,
        input: str | bytes | None = None,
        cwd: Path | None = None,
        timeout: float = 60,
        **env: str,
    ) -> subprocess.CompletedProcess[str]:
        """One stoker command; output as text, whatever its bytes."""
        data = input.encode() if isinstance(input, str) else input
        done = subprocess.run(
            [*self.command, *words],
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            env={**self.env, **env},
            cwd=cwd or self.folder,
            timeout=timeout,
        )
        return subprocess.CompletedProcess(
            done.args,
            done.returncode,
            done.stdout.decode("utf-8", "surrogateescape"),
            done.stderr.decode("utf-8", "surrogateescape"),
        )

    def ok(self, *words: str, **kwargs: Any) -> str:
        """A command that must succeed; its stdout."""
        done = self.run(*words, **kwargs)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def popen(self, *words: str, **kwargs: Any) -> subprocess.Popen[str]:
        env = {**self.env, **kwargs.pop("env", {})}
        return subprocess.Popen(
            [*self.command, *words],
            env=env,
            cwd=self.folder,
            text=True,
            stdout=kwargs.pop("stdout", subprocess.PIPE),
            stderr=kwargs.pop("stderr", subprocess.PIPE),
            **kwargs,
        )

    def submit(self, *words: str, **env: str) -> int:
        """Queue one job; its id."""
        return int(self.ok("submit", "-q", *words, **env))

    def job(self, id: int) -> dict[str, Any]:
        job: dict[str, Any] = json.loads(self.ok("show", str(id), "--json"))["jobs"][0]
        return job

    def state(self, id: int) -> str:
        return str(self.job(id)["state"])

    def states(self) -> dict[int, str]:
        jobs = json.loads(self.ok("ls", "--state", "all", "-n", "100000", "--json"))["jobs"]
        return {job["id"]: job["state"] for job in jobs}

    def log(self, id: int) -> str:
        return self.ok("log", str(id))

    def wait(self, *ids: int, timeout: float = 60) -> int:
        """Wait for jobs (all when none is named); the exit code of `stoker wait`."""
        words = [str(id) for id in ids]
        return self.run("wait", "-q", *words, timeout=timeout).returncode

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

    def kill_driver(self) -> None:
        """End the sweep driver, if the daemon has one as a child."""
        for pid in job_processes.children(self.daemon_pid() or 0):
            try:
                if b".sweep_driver" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                continue

    def tag_base(self) -> int | None:
        """The number that all processes of this lab's jobs carry."""
        import sqlite3

        path = self.state_dir / "queue.db"
        if not path.exists():
            return None
        connection = sqlite3.connect(path)
        try:
            row = connection.execute("SELECT value FROM meta WHERE key = 'tag'").fetchone()
        except sqlite3.Error:
            return None
        finally:
            connection.close()
        return None if row is None else int(row[0])

    def processes(self) -> list[int]:
        """Living processes of this lab's jobs."""
        base = self.tag_base()
        return (
            [] if base is None else [process.pid for process in job_processes.all_processes(base)]
        )

    def close(self) -> None:
        """End everything this lab started, also what is only just starting."""
        while self.daemon_pid() is not None:  # politely: a killed one would be replaced
            self._kill(self.daemon_pid, signal.SIGTERM)
        self._kill(self.runner_pid, signal.SIGKILL)
        base = self.tag_base()
        if base is not None:
            kill_processes.kill_all(base, timeout=5)
            JobCgroups.load(str(self.state_dir)).close()
        mark = os.fsencode(f"STOKER_STATE_DIR={self.state_dir}\0")
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and mark in Path(f"/proc/{entry}/environ").read_bytes():
                    os.kill(int(entry), signal.SIGKILL)
            except OSError:
                continue

    # -- waiting -------------------------------------------------------------------------------

    def wait_until(
        self, condition: Callable[[], object], timeout: float = 30, what: str = ""
    ) -> None:
        wait_until(condition, timeout, what)


def wait_until(condition: Callable[[], object], timeout: float = 30, what: str = "") -> None:
    """Look until it is so; fail with the last thing seen."""
    give_up = time.monotonic() + timeout
    while True:
        seen = condition()
        if seen:
            return
        if time.monotonic() > give_up:
            raise AssertionError(f"gave up after {timeout}s: {what or condition} ({seen!r})")
        time.sleep(0.01)  # the one place where tests wait for the outside world
