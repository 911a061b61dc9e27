"""The GPUs of a run of `hog`: one worker for each slot, and the optional GPU file."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence

from stoker.compat.hog.options import Unusable, gpu_ids
from stoker.errors import Error

_POLL_SECONDS = 0.5
_MAX_BYTES = 1 << 16


class Workers:
    """Prints the lines of gpu-hog when workers start and exit."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._slots: list[str] = []
        self._leaving: Counter[str] = Counter()  # workers that exit when their job ends

    def use(self, slots: Sequence[str], busy: Counter[str]) -> None:
        present, wanted = Counter(self._slots) + self._leaving, Counter(slots)
        for slot in dict.fromkeys(self._slots):
            removed = max(0, Counter(self._slots)[slot] - wanted[slot])
            at_once = min(removed, present[slot] - busy[slot])
            for _ in range(at_once):
                self._write(f"(GPU {slot}): exiting")
            self._leaving[slot] += removed - at_once
        unmatched = Counter(self._slots)
        for slot in slots:
            if unmatched[slot]:
                unmatched[slot] -= 1
            elif self._leaving[slot]:
                self._leaving[slot] -= 1  # it was added again before its job ended
            else:
                self._write(f"Worker {slot} starting")
        self._slots = list(slots)

    def freed(self, slot: str) -> None:
        if self._leaving[slot]:
            self._leaving[slot] -= 1
            self._write(f"(GPU {slot}): exiting")


class GpuFile:
    """A file of GPU IDs, separated by commas, spaces or newlines; `#` starts a comment."""

    def __init__(self, path: str, per_gpu: int) -> None:
        self._path = path
        self._per_gpu = per_gpu
        self._version: tuple[int, int, int] | None = None  # inode, mtime, size
        self._last_error = ""
        self.next_poll = 0.0

    def read(self) -> list[str]:
        try:
            with open(self._path, encoding="utf-8") as file:
                info = os.fstat(file.fileno())
                self._version = (info.st_ino, info.st_mtime_ns, info.st_size)
                lines = [line.partition("#")[0] for line in file.read(_MAX_BYTES).splitlines()]
        except (OSError, ValueError) as error:
            raise Unusable(f"cannot read the GPU file `{self._path}`: {error}") from None
        text = " ".join(" ".join(lines).replace(",", " ").split())
        return gpu_ids(text, self._per_gpu) if text else []

    def read_if_changed(self, warn: Callable[[str], None]) -> list[str] | None:
        """The slots if the file has changed; an invalid file is reported and ignored."""
        now = time.monotonic()
        if now < self.next_poll:
            return None
        self.next_poll = now + _POLL_SECONDS
        try:
            info = os.stat(self._path)
            if (info.st_ino, info.st_mtime_ns, info.st_size) == self._version:
                return None
            return self.read()
        except (OSError, Error) as error:
            reason = error.message if isinstance(error, Error) else str(error)
            if reason != self._last_error:
                self._last_error = reason
                warn(f"the GPU file is ignored: {reason}")
            return None
