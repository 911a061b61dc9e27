"""Logs of a foreground run: one file for each job with output."""

from __future__ import annotations

import os
from pathlib import Path

from tests.lab import Lab


def logs(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("*.log")}


def test_only_jobs_that_print_or_fail_have_a_log(lab: Lab) -> None:
    lines = "\n".join(["true", "echo two", "exit 3", "true", "echo five >&2", "true"])
    lab.run("run", "--devices", "0", "--log-dir", "out", "-", input=lines)
    assert logs(lab.folder / "out") == {"2.log": "two\n", "3.log": "", "5.log": "five\n"}
    assert {name for name in os.listdir(lab.folder / "out") if "queue" not in name} <= {
        "2.log", "3.log", "5.log", "run.lock",
    }  # fmt: skip


def test_output_never_goes_to_the_log_of_another_job(lab: Lab) -> None:
    lines = "\n".join(f"test $(({n} % 3)) = 0 || echo {n}; : ;" for n in range(60))
    lab.run("run", "--devices", "0,0,1,1", "--log-dir", "out", "-", input=lines)
    wanted = {f"{n + 1}.log": f"{n}\n" for n in range(60) if n % 3}
    assert logs(lab.folder / "out") == wanted


def test_running_job_has_a_log(lab: Lab) -> None:
    gate = lab.folder / "gate"
    os.mkfifo(gate)
    (lab.folder / "jobs.txt").write_text(f"echo begun; read x < {gate}\n")
    run = lab.popen("run", "--devices", "0", "--log-dir", "out", "jobs.txt")
    log = lab.folder / "out" / "1.log"
    lab.wait_until(lambda: log.exists() and log.read_text() == "begun\n")
    gate.write_text("go\n")
    run.communicate()
    assert run.returncode == 0
