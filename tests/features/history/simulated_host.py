"""Simulated hosts: the readings that their GPUs and jobs would produce."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

from stoker.features.history.store_usage import FILE_NAME, TraceWriter, TrackRow
from stoker.features.history.time_series import gather

GIB = 1 << 30
DAY = 86400.0


class SimulatedHost:
    """GPUs with busy and idle phases and realistic noise, each with a job on it.

    The jobs that run change now and then; `jobs` of them run at a time.
    """

    def __init__(self, gpus: int = 8, jobs: int = 0, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        self._gpus = [self.uuid(number) for number in range(gpus)]
        self._jobs = jobs
        self._next_job = 1 + jobs
        self._current = list(range(1, 1 + jobs))

    @staticmethod
    def uuid(number: int) -> str:
        return f"GPU-{number:08x}-0000-4000-8000-000000000000"

    def gpu_rows(self) -> Iterator[TrackRow]:
        for uuid in self._gpus:
            yield TrackRow("gpu", uuid, gather("gpu", [self._values()]))

    def job_rows(self, with_gpus: bool) -> Iterator[TrackRow]:
        rng = self._rng
        for place in range(self._jobs):
            if rng.random() < 1 / 2000:  # another job starts, about every 3 hours
                self._current[place], self._next_job = self._next_job, self._next_job + 1
            key = str(self._current[place])
            memory = 20 * GIB + rng.gauss(0, 1) * (50 << 20)
            yield TrackRow(
                "job_processes",
                key,
                gather("job_processes", [(max(0, rng.gauss(400, 40)), memory)]),
            )
            if with_gpus:
                yield TrackRow("job_gpus", key, gather("job_gpus", [self._values()]))

    def _values(self) -> tuple[float, float, float, float]:
        rng = self._rng
        use = min(100, max(0, rng.gauss(80, 15)))
        memory = 60 * GIB + rng.gauss(0, 1) * GIB / 4
        return use, memory, 100 + use * 5 + rng.gauss(0, 10), 40 + use / 3


def run(
    writer: TraceWriter, host: SimulatedHost, start: float, seconds: float, pace: float = 5.0
) -> None:
    """Write all ticks of a period without waiting."""
    for tick in range(int(seconds / pace)):
        has_gpus = tick % 2 == 1
        rows = list(host.job_rows(has_gpus))
        if has_gpus:
            rows += host.gpu_rows()
        writer.append(start + tick * pace, rows, lambda job: False)
        assert writer.error is None


def size(folder: Path) -> int:
    """Bytes on disk, including SQLite's WAL files."""
    return sum(
        os.stat(folder / name).st_size for name in os.listdir(folder) if name.startswith(FILE_NAME)
    )
