"""The GPUs of a run of `hog`: a worker for each, and a file that may change which they are."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence

from stoker.compat.hog.options import Unusable, gpu_ids
from stoker.errors import Error

_LOOK_SECONDS = 0.5
_MOST_BYTES = 1 << 16


class Workers:
    """Who has come and who has gone, in the words of gpu-hog."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._here: list[str] = []
        self._leaving: Counter[str] = Counter()  # gone when their job ends

    def use(self, slots: Sequence[str], busy: Counter[str]) -> None:
        here, wanted = Counter(self._here) + self._leaving, Counter(slots)
        for slot in dict.fromkeys(self._here):
            gone = max(0, Counter(self._here)[slot] - wanted[slot])
            at_once = min(gone, here[slot] - busy[slot])
            for _ in range(at_once):
                self._say(f"(GPU {slot}): exiting")
            self._leaving[slot] += gone - at_once
        known = Counter(self._here)
        for slot in slots:
            if known[slot]:
                known[slot] -= 1
            elif self._leaving[slot]:
                self._leaving[slot] -= 1  # it stays after all
            else:
                self._say(f"Worker {slot} starting")
        self._here = list(slots)

    def freed(self, slot: str) -> None:
        if self._leaving[slot]:
            self._leaving[slot] -= 1
            self._say(f"(GPU {slot}): exiting")


class GpuFile:
    """A file with IDs of GPUs, separated by commas, blanks or lines; `#` begins a comment."""

    def __init__(self, path: str, per_gpu: int) -> None:
        self._path = path
        self._per_gpu = per_gpu
        self._seen: tuple[int, int, int] | None = None
        self._told = ""
        self.look_at = 0.0

    def read(self) -> list[str]:
        try:
            with open(self._path, encoding="utf-8") as file:
                info = os.fstat(file.fileno())
                self._seen = (info.st_ino, info.st_mtime_ns, info.st_size)
                lines = [line.partition("#")[0] for line in file.read(_MOST_BYTES).splitlines()]
        except (OSError, ValueError) as error:
            raise Unusable(f"cannot read the GPU file `{self._path}`: {error}") from None
        text = " ".join(" ".join(lines).replace(",", " ").split())
        return gpu_ids(text, self._per_gpu) if text else []

    def news(self, tell: Callable[[str], None]) -> list[str] | None:
        """The slots, when the file has changed; nonsense is told of and otherwise ignored."""
        now = time.monotonic()
        if now < self.look_at:
            return None
        self.look_at = now + _LOOK_SECONDS
        try:
            info = os.stat(self._path)
            if (info.st_ino, info.st_mtime_ns, info.st_size) == self._seen:
                return None
            return self.read()
        except (OSError, Error) as error:
            why = error.message if isinstance(error, Error) else str(error)
            if why != self._told:
                self._told = why
                tell(f"the GPU file is ignored: {why}")
            return None
