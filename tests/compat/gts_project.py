"""A test project that uses gpu_task_scheduler: a folder of Python files and a main script."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

from tests.lab import Lab

TASK = """
    import json, os
    from gpu_task_scheduler.gpu_task import GPUTask

    class Task(GPUTask):
        def main(self):
            with open(os.path.join(self._work_dir, "out.json"), "w") as file:
                json.dump(self._config, file)
"""
MAIN = """
    from config import config
    from task import Task
    from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler

    GPUTaskScheduler(config=config, gpu_task_class=Task).start()
"""
_TIME = re.compile(r"^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d ", re.MULTILINE)
_STDERR_TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", re.MULTILINE)


class Project:
    def __init__(self, lab: Lab, name: str = "project") -> None:
        self.lab = lab
        self.folder = lab.folder / name
        self.folder.mkdir()
        self.write(task=TASK, main=MAIN)

    def write(self, **files: str) -> None:
        """Write Python files; the name `a__b` means a/b.py."""
        for name, text in files.items():
            path = self.folder / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text))
            # Python detects a changed file by its size and mtime in seconds only.
            for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
                compiled.unlink()

    def configure(self, *grids: dict[str, Any], gpu: Any = ("0",), **scheduler_config: Any) -> None:
        """Write config.py with these grids; the other arguments go to `scheduler_config`."""
        rules = {"gpu": list(gpu), **scheduler_config}
        config: dict[str, Any] = {"scheduler_config": rules}
        if grids:
            config["test_config"] = list(grids)
        self.write(config=f"config = {config!r}\n")

    def run(
        self, script: str = "main.py", *words: str, cwd: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, script, *words], cwd=cwd or self.folder, env=self.lab.env | env,
            capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def ok(self, script: str = "main.py", *words: str, **env: str) -> str:
        done = self.run(script, *words, cwd=None, **env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def popen(self, script: str = "main.py") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, script], cwd=self.folder, env=self.lab.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def path(self, name: str) -> Path:
        return self.folder / name

    def read(self, name: str) -> str:
        return self.path(name).read_text()

    def lines(self, name: str) -> list[str]:
        path = self.path(name)
        return path.read_text().splitlines() if path.exists() else []

    def messages(self, name: str = "scheduler.log") -> list[str]:
        """The lines of the scheduler's log without times and source locations."""
        text = _TIME.sub("", self.read(name))
        return re.sub(r"^gpu_task_scheduler.py\[line:\d+\] ", "", text, flags=re.M).splitlines()

    def results(self) -> dict[str, list[str]]:
        """The result folders and the names of their files."""
        found = self.path("results").iterdir()
        return {path.name: sorted(file.name for file in path.iterdir()) for path in sorted(found)}


def without_stderr_times(text: str) -> list[str]:
    return _STDERR_TIME.sub("", text).splitlines()
