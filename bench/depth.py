"""Compare the dispatch rate of a short queue with that of a deep queue.

The daemon is drained while jobs are submitted, then resumed; the rate is that of the first jobs.
The other jobs are discarded with the daemon and its state folder.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from bench import process
from bench.conditions import Conditions, observed
from bench.lab import Lab
from bench.measure import first_started, parse_stamps, peak_concurrency, steady_rate
from bench.report import Section
from bench.table import median, number, spread, table
from bench.tools.base import wait_for_stamps
from bench.tools.stoker import stoker_daemon, stoker_missing
from bench.workload import Batch, prepare_batch

HEADINGS = (
    "queued",
    "jobs/s, next jobs",
    "ratio to the short queue (range)",
    "submit s",
    "daemon MiB",
    "runner MiB",
)
TITLE = "Dispatch from a deep queue"


@dataclass(frozen=True)
class Dispatch:
    queued: int
    repeat: int
    jobs: int
    rate: float
    peak: int
    submit_seconds: float
    daemon_kib: int
    runner_kib: int


def measure_depth(lab: Lab, sizes: Sequence[int], slots: int, repeats: int) -> Section:
    if reason := stoker_missing():
        return Section("depth", TITLE, f"Not run: {reason}")
    short, deep = min(sizes), max(sizes)
    found: list[Dispatch] = []
    conditions: list[Conditions] = []
    for repeat in range(min(repeats, 3)):
        with observed(lab, repeat, conditions):
            found += [_dispatch(lab, queued, short, slots, repeat) for queued in (short, deep)]
    rows = [
        _row([one for one in found if one.queued == queued], found, short)
        for queued in (short, deep)
    ]
    text = f"Rate of the first {short:,} jobs after a resume, {slots} slots, plain lines.\n\n"
    text += table(HEADINGS, rows)
    crowded = [one for one in found if one.peak > slots]
    if crowded:
        text += f"\n\nFault: {crowded[0].peak} jobs at once on {slots} slots."
    return Section("depth", TITLE, text, [asdict(one) for one in found], conditions)


def _dispatch(lab: Lab, queued: int, wanted: int, slots: int, repeat: int) -> Dispatch:
    batch = prepare_batch(
        lab.fresh_path(),
        lab.environ,
        stamp=lab.stamp,
        form="plain",
        slots=slots,
        count=queued,
    )
    with stoker_daemon(batch.folder, batch.environ, slots) as daemon:
        daemon.call("daemon", "drain")
        began = time.monotonic()
        daemon.call("submit", "--file", str(batch.lines), "-q")
        submitted = time.monotonic() - began
        daemon.call("daemon", "resume")
        wait_for_stamps(_first(batch, wanted))
        pids = daemon.status()
        memory = [process.memory_kib(pids.get(key, 0)) or 0 for key in ("pid", "runner_pid")]
    stamps = first_started(parse_stamps(batch.stamps.read_text()), wanted)
    rate, peak = steady_rate(stamps), peak_concurrency(stamps)
    return Dispatch(queued, repeat, wanted, rate, peak, submitted, memory[0], memory[1])


def _first(batch: Batch, wanted: int) -> Batch:
    """The same batch, but complete after the first `wanted` jobs.

    A few more jobs than are counted must end, so that the slowest counted job is included.
    """
    count = min(batch.count, wanted + batch.slots)
    return replace(batch, count=count)


def _row(mine: Sequence[Dispatch], all_found: Sequence[Dispatch], short: int) -> tuple[str, ...]:
    base = {one.repeat: one.rate for one in all_found if one.queued == short}
    return (
        f"{mine[0].queued:,}",
        number(median([one.rate for one in mine])),
        spread([one.rate / base[one.repeat] for one in mine]),
        number(median([one.submit_seconds for one in mine]), 2),
        number(median([one.daemon_kib / 1024 for one in mine])),
        number(median([one.runner_kib / 1024 for one in mine])),
    )
