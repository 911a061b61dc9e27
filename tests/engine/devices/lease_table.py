"""A table in shared memory of the leases that processes hold, to check the locks independently.

A row is entered after its lease was taken and emptied before it is released, so at any moment the
sum of all rows is not more than what was granted.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping

ROWS = 8
GPUS = ("gpu-0", "gpu-1", "gpu-2")
_WHOLE = (1 << 64) - 1
_NOTHING = (1 << 64) - 2  # not 0: a claim may be of 0 bytes
_WIDTH = 1 + len(GPUS)  # a version, odd while the row is written, and an amount for each GPU


class LeaseTable:
    def __init__(self, path: str) -> None:
        size = ROWS * _WIDTH * 8
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.ftruncate(descriptor, size)
        self._cells = memoryview(mmap.mmap(descriptor, size)).cast("Q")
        os.close(descriptor)

    def clear(self) -> None:
        for row in range(ROWS):
            self.enter(row, {})

    def enter(self, row: int, amounts: Mapping[str, int | None]) -> None:
        start = row * _WIDTH
        self._cells[start] += 1
        for index, gpu in enumerate(GPUS, start + 1):
            amount = amounts.get(gpu, _NOTHING)
            self._cells[index] = _WHOLE if amount is None else amount
        self._cells[start] += 1

    def check(self, total: int) -> set[str]:
        """Fail if more was leased than a GPU has; returns the kinds of leases seen."""
        seen = set()
        for gpu, amounts in self._snapshot().items():
            if _WHOLE in amounts:
                assert amounts == [_WHOLE], f"{gpu} is held whole and by others: {amounts}"
                seen.add("whole")
            elif len(amounts) > 1:
                assert sum(amounts) <= total, f"{gpu} is over-committed: {amounts}"
                seen.add("shared")
        return seen

    def _snapshot(self) -> dict[str, list[int]]:
        """Return a consistent view of all rows; empty if a process wrote meanwhile."""
        before = self._cells.tolist()
        after = self._cells.tolist()
        versions = before[::_WIDTH]
        if versions != after[::_WIDTH] or any(version % 2 for version in versions):
            return {}
        return {
            gpu: [amount for amount in before[index::_WIDTH] if amount != _NOTHING]
            for index, gpu in enumerate(GPUS, 1)
        }
