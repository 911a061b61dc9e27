"""Simulated hosts: the readings that their GPUs and jobs would produce."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

from stoker.core.formats.time_series import gather
from stoker.store.usage_history import FILE_NAME, Row, TraceWriter

GIB = 1 << 30
DAY = 86400.0


class Plant:
    """GPUs with busy and idle phases and realistic noise, each with a job on it.

    The jobs that run change now and then; `jobs` of them run at a time.
    """

    def __init__(self, cards: int = 8, jobs: int = 0, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        self._cards = [self.uuid(number) for number in range(cards)]
        self._jobs = jobs
        self._next_job = 1 + jobs
        self._current = list(range(1, 1 + jobs))

    @staticmethod
    def uuid(number: int) -> str:
        return f"GPU-{number:08x}-0000-4000-8000-000000000000"

    def card_rows(self) -> Iterator[Row]:
        for uuid in self._cards:
            yield Row("card", uuid, gather("card", [self._look()]))

    def job_rows(self, with_cards: bool) -> Iterator[Row]:
        chance = self._chance
        for place in range(self._jobs):
            if chance.random() < 1 / 2000:  # another job starts, about every 3 hours
                self._current[place], self._next_job = self._next_job, self._next_job + 1
            key = str(self._current[place])
            memory = 20 * GIB + chance.gauss(0, 1) * (50 << 20)
            yield Row("tree", key, gather("tree", [(max(0, chance.gauss(400, 40)), memory)]))
            if with_cards:
                yield Row("share", key, gather("share", [self._look()]))

    def _look(self) -> tuple[float, float, float, float]:
        chance = self._chance
        use = min(100, max(0, chance.gauss(80, 15)))
        memory = 60 * GIB + chance.gauss(0, 1) * GIB / 4
        return use, memory, 100 + use * 5 + chance.gauss(0, 10), 40 + use / 3


def run(writer: TraceWriter, plant: Plant, start: float, seconds: float, pace: float = 5.0) -> None:
    """Write all ticks of a period without waiting."""
    for beat in range(int(seconds / pace)):
        has_cards = beat % 2 == 1
        rows = list(plant.job_rows(has_cards))
        if has_cards:
            rows += plant.card_rows()
        writer.tick(start + beat * pace, rows, lambda job: False)
        assert writer.trouble is None


def size(folder: Path) -> int:
    """Bytes on disk, including SQLite's WAL files."""
    return sum(
        os.stat(folder / name).st_size for name in os.listdir(folder) if name.startswith(FILE_NAME)
    )
