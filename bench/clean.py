"""`stoker clean`: duration, longest wait of another writer, and database size afterwards."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from bench.conditions import Conditions, observed
from bench.lab import Lab
from bench.process import run as run_process
from bench.report import Section
from bench.table import number, spread, table
from bench.tools.stoker import simulated, stoker_command, stoker_missing

HEADINGS = (
    "jobs",
    "seconds (range)",
    "longest wait of a writer, ms",
    "database MB before",
    "after",
)
TITLE = "Removing finished jobs: `stoker clean`"
_LOG = b"one line of output\n"


@dataclass(frozen=True)
class Clean:
    jobs: int
    repeat: int
    seconds: float
    longest_wait: float
    before: int
    after: int


def measure_clean(lab: Lab, sizes: Sequence[int], repeats: int) -> Section:
    if reason := stoker_missing():
        return Section("clean", TITLE, f"Not run: {reason}")
    found: list[Clean] = []
    conditions: list[Conditions] = []
    for repeat in range(min(repeats, 3)):
        with observed(lab, repeat, conditions):
            found += [_clean(lab, size, repeat) for size in sizes]
    rows = [_row([one for one in found if one.jobs == size]) for size in sizes]
    return Section(
        "clean", TITLE, table(HEADINGS, rows), [asdict(one) for one in found], conditions
    )


def finished_jobs(state: Path, count: int) -> None:
    """Turn held jobs into finished jobs, each with an attempt, an event and a log."""
    db = sqlite3.connect(state / "queue.db")
    db.execute("UPDATE jobs SET state = 'done', ended_at = 2, attempts = 1, attempt = id")
    db.execute(
        "INSERT INTO attempts (id, job, number, devices, claimed_at, started_at, boot, pid,"
        " ended_at, status, cause) SELECT id, id, 1, '0', 1, 1, 'boot', 1, 2, 0, 'exit' FROM jobs"
    )
    db.execute("INSERT INTO events (job, at, kind) SELECT id, 1, 'released' FROM jobs")
    db.commit()
    db.close()
    for job in range(1, count + 1):
        folder = state / "jobs" / str(job // 1000)
        if job % 1000 == 0 or job == 1:
            folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{job}-1.log").write_bytes(_LOG)


class _Writer(threading.Thread):
    """Takes the write lock repeatedly, as the daemon does, and records the longest wait."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.is_over = threading.Event()
        self.longest = 0.0

    def run(self) -> None:
        db = sqlite3.connect(self._path, isolation_level=None, timeout=60)
        while not self.is_over.wait(0.002):
            began = time.monotonic()
            db.execute("BEGIN IMMEDIATE")
            db.execute("UPDATE meta SET value = value WHERE key = 'tag'")
            db.execute("COMMIT")
            self.longest = max(self.longest, time.monotonic() - began)
        db.close()


def _clean(lab: Lab, size: int, repeat: int) -> Clean:
    folder = lab.fresh_folder()
    environ = simulated(lab.environ, folder, 4)
    lines = folder / "lines"
    lines.write_text("".join(f"true --seed {seed}\n" for seed in range(size)))
    submit = [*stoker_command(), "submit", "--file", "-", "-q", "--hold"]
    run_process(submit, environ, folder=folder, stdin=lines, timeout=600)
    state = folder / "s"
    finished_jobs(state, size)
    before = _size(state)
    writer = _Writer(state / "queue.db")
    writer.start()
    began = time.monotonic()
    try:
        run_process([*stoker_command(), "clean"], environ, folder=folder, timeout=600)
    finally:
        writer.is_over.set()
        writer.join()
    return Clean(size, repeat, time.monotonic() - began, writer.longest, before, _size(state))


def _size(state: Path) -> int:
    return sum(path.stat().st_size for path in state.glob("queue.db*"))


def _row(found: Sequence[Clean]) -> tuple[str, ...]:
    return (
        f"{found[0].jobs:,}",
        spread([one.seconds for one in found]),
        number(1000 * max(one.longest_wait for one in found)),
        number(median(one.before for one in found) / 1e6),
        number(median(one.after for one in found) / 1e6),
    )
