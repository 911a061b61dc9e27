"""The console lines of `hog`: as the original prints them on stdout, with times in a log file."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from stoker.compat.foreground.entry import write_line, write_notice
from stoker.compat.hog.options import Unusable

LOGGER = logging.getLogger("hog")


class _Stdout(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING:
            write_line(record.getMessage())
        else:  # not on stdout, which scripts parse
            write_notice(record.getMessage())


class _File(logging.FileHandler):
    def __init__(self, path: str) -> None:
        # The encoding with which commands were decoded, so that their bytes stay unchanged.
        super().__init__(path, encoding=sys.getfilesystemencoding(), errors="surrogateescape")

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore write errors: jobs continue on a full disk, without a traceback per line."""


class Console:
    def __init__(self, log_file: str | None) -> None:
        LOGGER.setLevel(logging.INFO)
        LOGGER.propagate = False
        LOGGER.handlers = [_Stdout()]
        if log_file is not None:
            try:
                file = _File(log_file)
            except OSError as error:
                raise Unusable(
                    f"cannot write the log file `{log_file}`: {error.strerror}"
                ) from None
            file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
            LOGGER.addHandler(file)

    def info(self, text: str) -> None:
        LOGGER.info("%s", text)

    def warn(self, text: str) -> None:
        LOGGER.warning("%s", text)


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
