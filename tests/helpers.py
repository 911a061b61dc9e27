"""Helpers for tests with real processes."""

from __future__ import annotations

from pathlib import Path

from tests.lab import wait_until


class Gate:
    """Jobs register with their PID and wait until the test opens the gate."""

    def __init__(self, folder: Path, name: str = "gate") -> None:
        self.path = folder / name
        self.arrivals = folder / f"{name}.arrivals"

    @property
    def wait(self) -> str:
        """Shell text that registers the job and waits for the gate."""
        return f"echo $$ >> '{self.arrivals}'; until [ -e '{self.path}' ]; do sleep 0.05; done"

    def arrived(self) -> list[int]:
        """PIDs of the jobs that wait at the gate."""
        try:
            return [int(line) for line in self.arrivals.read_text().split()]
        except FileNotFoundError:
            return []

    def wait_for(self, count: int = 1) -> list[int]:
        wait_until(lambda: len(self.arrived()) >= count, what=f"{count} jobs at {self.path}")
        return self.arrived()

    def open(self) -> None:
        self.path.touch()


def is_alive(pid: int) -> bool:
    """Whether a process is running; a zombie is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")
