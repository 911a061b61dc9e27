"""Submit a file of jobs in one call: time and memory of the client."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from bench import process
from bench.conditions import Conditions, observed
from bench.lab import Lab
from bench.process import ToolError
from bench.report import Section
from bench.table import number, spread, table
from bench.tools.stoker import Daemon, stoker_command, stoker_daemon, stoker_missing

HEADINGS = ("jobs", "seconds (range)", "jobs/s", "client peak MiB", "daemon MiB after")
TITLE = "Bulk submit: `stoker submit --file - -q --hold`"


@dataclass(frozen=True)
class Submit:
    jobs: int
    repeat: int
    seconds: float
    client_peak_kib: int
    daemon_kib: int


def measure_bulk(lab: Lab, sizes: Sequence[int], repeats: int) -> Section:
    if reason := stoker_missing():
        return Section("bulk", TITLE, f"Not run: {reason}")
    found: list[Submit] = []
    conditions: list[Conditions] = []
    for repeat in range(min(repeats, 3)):
        with observed(lab, repeat, conditions):
            found += [_submit(lab, size, repeat) for size in sizes]
    rows = [_row([one for one in found if one.jobs == size]) for size in sizes]
    return Section("bulk", TITLE, table(HEADINGS, rows), [asdict(one) for one in found], conditions)


def write_lines(path: Path, count: int) -> Path:
    """Write different lines, like those of a sweep."""
    with path.open("w") as out:
        out.writelines(f"true --lr 0.001 --seed {number}\n" for number in range(count))
    return path


def _submit(lab: Lab, size: int, repeat: int) -> Submit:
    with stoker_daemon(lab.fresh_folder(), lab.environ, 4) as daemon:
        lines = write_lines(daemon.folder / "lines", size)
        seconds, peak = _timed_submit(daemon, lines)
        resident = process.memory_kib(daemon.status()["pid"]) or 0
    return Submit(size, repeat, seconds, peak, resident)


def _timed_submit(daemon: Daemon, lines: Path) -> tuple[float, int]:
    """Return the wall seconds and the peak memory (KiB) of the client.

    The peak is read from /proc while the client runs, because the value from wait4 starts with the
    memory of the parent, here the harness. VmHWM only grows, so the last reading, at most 5 ms
    before the exit, is close to the peak.
    """
    command = [*stoker_command(), "submit", "--file", "-", "-q", "--hold"]
    began = time.monotonic()
    client = process.start(command, daemon.environ, folder=daemon.folder, stdin=lines)
    peak = 0
    while client.poll() is None:
        peak = max(peak, process.memory_kib(client.pid, "VmHWM") or 0)
        time.sleep(0.005)
    if client.returncode != 0:
        raise ToolError(f"stoker submit: exit code {client.returncode}")
    return time.monotonic() - began, peak


def _row(found: Sequence[Submit]) -> tuple[str, ...]:
    seconds = [one.seconds for one in found]
    return (
        f"{found[0].jobs:,}",
        spread(seconds),
        number(found[0].jobs / median(seconds)),
        number(max(one.client_peak_kib for one in found) / 1024),
        number(median(one.daemon_kib for one in found) / 1024),
    )
