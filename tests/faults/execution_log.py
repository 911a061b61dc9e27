"""Jobs that write to a file, and the check that the file and the database agree."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.lab import Lab


class ExecutionLog:
    """A file to which each job appends its number once; the number determines its exit code."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.path: Path = lab.folder / "executions"
        self.path.touch()

    def command(self, number: int, seconds: float = 0.0) -> str:
        pause = f"sleep {seconds}; " if seconds else ""
        return f"echo {number} >> {self.path}; {pause}exit {self.code(number)}"

    def code(self, number: int) -> int:
        return number % 4

    def counts(self) -> Counter[int]:
        return Counter(int(line) for line in self.path.read_text().split())

    def check(self, numbers: dict[int, int], *, may_be_lost: int = 0) -> list[int]:
        """Check I1 to I3 for jobs {number: id}; returns the ids of lost jobs."""
        ran = self.counts()
        lost = []
        found = self._lab.ok("ls", "--state", "all", "-n", "100000", "--json")
        jobs = {job["id"]: job for job in json.loads(found)["jobs"]}
        for number, id in numbers.items():
            job = jobs[id]
            if job["state"] == "lost":
                assert ran[number] <= 1, f"job {id} ran {ran[number]} times: {job}"
                lost.append(id)
                continue
            assert ran[number] == 1, f"job {id} ran {ran[number]} times: {job}"
            expected = "done" if self.code(number) == 0 else "failed"
            assert job["state"] == expected, job
            assert job["exit_code"] == self.code(number), job
        assert len(lost) <= may_be_lost, f"lost: {lost}"
        return lost


def finish_everything(lab: Lab) -> None:
    """Keep a daemon running until all jobs have ended (I6), then check the database (I7)."""

    def all_final() -> bool:
        if lab.daemon_pid() is None:
            lab.run("daemon", "start")
        return not set(lab.states().values()) & {"queued", "starting", "running", "stopping"}

    lab.wait_until(all_final, what="all jobs final")
    assert not lab.processes()  # I5
    import sqlite3

    connection = sqlite3.connect(lab.state_dir / "queue.db")
    assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    connection.close()
