"""Measure the cost of usage recording: python -m tests.features.history.measure [size|ticks]

size    bytes on disk, day by day, of 8 GPUs and 8 jobs over 40 days, and how long charts of them
        take to read (several minutes)
ticks   CPU time of one tick with 0, 8 and 100 running jobs
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stoker.engine.supervisor import kill_processes, process_tags
from stoker.engine.supervisor.process_usage import UsageSampler
from stoker.features.history.store_usage import FILE_NAME, TraceWriter, TrackRow
from stoker.features.history.usage_charts import gpu_trace, job_trace
from tests.features.history.simulated_host import DAY, SimulatedHost, run, size


def measure_size(folder: Path, days: int = 40) -> None:
    for jobs in (0, 8):
        place = folder / f"jobs{jobs}"
        place.mkdir()
        writer, host = TraceWriter(str(place), 1), SimulatedHost(8, jobs)
        start = time.time() - days * DAY
        begun = time.process_time()
        for day in range(days):
            run(writer, host, start + day * DAY, DAY)
            if day in (0, 1, 2, 9, 29, 30, 31, days - 1):
                used = time.process_time() - begun
                print(f"8 GPUs, {jobs} jobs, day {day + 1}: {size(place):,} bytes "
                      f"({used:.1f} s so far)", flush=True)  # fmt: skip
        writer.close()
        begun = time.process_time()
        writer = TraceWriter(str(place), 1)
        writer.append(time.time(), [], lambda job: False)
        writer.close()
        print(f"opened and checked in {1000 * (time.process_time() - begun):.1f} ms")
        measure_read(place)


def measure_read(folder: Path) -> None:
    for name, since in (("hour", 3600.0), ("day", DAY), ("month", 30 * DAY)):
        begun = time.process_time()
        found = gpu_trace(str(folder), SimulatedHost.uuid(0), time.time() - since, 600)
        took = 1000 * (time.process_time() - begun)
        print(f"{name}: {took:.1f} ms, {len(found['power'].points)} points")
    begun = time.process_time()
    found = job_trace(str(folder), 1, 600)
    print(f"a job: {1000 * (time.process_time() - begun):.1f} ms, {sorted(found)}")


def measure_ticks(folder: Path) -> None:
    for jobs in (0, 8, 100):
        tag = 0x2BADCAFE + jobs
        processes = []
        own = process_tags.own_limits()
        for attempt in range(1, jobs + 1):
            # The parent sets the tag and the child inherits it, as in spawn.py.
            process_tags.set_tag(process_tags.tag_of(tag, attempt))
            processes.append(subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600"]))
        process_tags.restore(own)
        try:
            measure_tick(folder / str(jobs), tag, jobs)
        finally:
            kill_processes.kill_all(tag)
            for process in processes:
                process.wait()


def measure_tick(folder: Path, tag: int, jobs: int) -> None:
    folder.mkdir()
    trees, writer, attempts = UsageSampler(tag), TraceWriter(str(folder), 1), range(1, jobs + 1)
    trees.sample(attempts, time.monotonic())
    looks = writes = most = 0.0
    rounds = 300  # one of them packs a block
    for _ in range(rounds):
        begun = time.process_time()
        found = trees.sample(attempts, time.monotonic()) if jobs else {}
        looked = time.process_time()
        rows = [TrackRow("job_processes", str(id), (int(tree.cpu or 0), tree.memory >> 16))
                for id, tree in found.items()]  # fmt: skip
        writer.append(time.time(), rows, lambda job: False)
        ended = time.process_time()
        looks, writes = looks + looked - begun, writes + ended - looked
        most = max(most, ended - looked)
    count = sum(entry.isdigit() for entry in os.listdir("/proc"))
    print(f"{jobs} jobs, {count} processes on the host: look {1000 * looks / rounds:.2f} ms, "
          f"write {1000 * writes / rounds:.2f} ms (packing {1000 * most:.1f} ms), "
          f"{os.stat(folder / FILE_NAME).st_size:,} bytes")  # fmt: skip
    writer.close()


def main() -> None:
    wanted = sys.argv[1:] or ["size", "ticks"]
    with tempfile.TemporaryDirectory() as folder:
        if "ticks" in wanted:
            measure_ticks(Path(folder))
        if "size" in wanted:
            measure_size(Path(folder))


if __name__ == "__main__":
    main()
