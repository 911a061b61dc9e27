"""Folders with programs and modules for warm starts."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

from stoker.engine.supervisor import job_processes
from tests.lab import Lab

# Takes CPU time, as importing torch does.
HEAVY = """
import os
VALUE = sum(range(300_000))
PID = os.getpid()
print('heavy was imported')
"""


def write_modules(folder: Path) -> Path:
    """A folder for PYTHONPATH with the module `heavy`."""
    modules = folder / "modules"
    modules.mkdir()
    (modules / "heavy.py").write_text(HEAVY)
    return modules


def write_files(folder: Path) -> None:
    """The files that the programs in programs.py use."""
    (folder / "neighbor.py").write_text("VALUE = 17\n")
    (folder / "data.json").write_text('{"a": 1}')
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import sys; print('main', sys.argv, __package__)\n")
    part = "import sys; print(sys.argv, __name__, __package__, __spec__.name, sys.path[0])\n"
    (package / "part.py").write_text(part)
    (package / "failing.py").write_text("def f(): raise OSError(5, 'x')\nf()\n")
    (package / "inner.py").write_text("import sys; print(sys.argv, sys.path[0], __file__)\n")
    shadow = folder / "shadow"
    shadow.mkdir()
    (shadow / "json.py").write_text("NAME = 'not the standard module'\n")
    (shadow / "program.py").write_text("import json; print(json.NAME)\n")
    os.symlink("package/inner.py", folder / "link.py")
    (folder / "unreadable.py").write_text("print(1)\n")
    with zipfile.ZipFile(folder / "program.zip", "w") as file:
        file.writestr("__main__.py", "import sys; print('zipped', sys.argv)\n")


def servers(lab: Lab) -> list[int]:
    """PIDs of the fork servers of the runner."""
    found = []
    for pid in job_processes.children(lab.runner_pid() or 0):
        try:
            if b"fork_server.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def notes(lab: Lab, job: int) -> list[str]:
    """Why the attempts of a job with --warm started cold."""
    return [one["data"] for one in lab.job(job)["events"] if one["kind"] == "cold_start"]


def outcomes(lab: Lab) -> dict[int, tuple[Any, ...]]:
    """How each job ended: state, cause, exit code, signal, output."""
    jobs = json.loads(lab.ok("ls", "--state", "all", "-n", "100000", "--json"))["jobs"]
    return {
        job["id"]: (job["state"], job["cause"], job["exit_code"], job["signal"], _output(job))
        for job in jobs
    }


def _output(job: dict[str, Any]) -> str:
    try:
        return Path(job["stdout"]).read_text(errors="replace")
    except FileNotFoundError:
        return ""  # empty logs are removed
