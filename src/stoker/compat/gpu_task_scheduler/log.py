"""The lines of `scheduler.log` and their like on stderr, as GPU Task Scheduler writes them.

Their place in its source is part of them (`gpu_task_scheduler.py[line:53]`), because people have
programs that read these lines. It also configures logging for the whole program, unless somebody
did before: what the program logs is in the same places, in the same form.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

_SOURCE = "gpu_task_scheduler.py"
_LINES = {"finished": 46, "receives": 53, "skips": 56, "fails": 88, "finishes": 93}
_DATE = "%a, %d %b %Y %H:%M:%S"
_IN_FILE = "%(asctime)s %(filename)s[line:%(lineno)d] %(levelname)s %(message)s"
_ON_STDERR = "%(asctime)s %(levelname)s %(message)s"


_for_the_program: list[logging.Handler] = []  # ours, at the root


class SchedulerLog:
    """Opened for the time of a run; without a path, only stderr."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else os.path.abspath(path)
        if self._path is not None:
            with open(self._path, "a"):
                pass  # a path that cannot be written is better known now
        self._handlers: list[logging.Handler] = []

    def configure(self) -> None:
        """Let the program's own lines go where ours go."""
        root = logging.root
        if any(handler not in _for_the_program for handler in root.handlers):
            return  # it has been configured, which counts
        for handler in _for_the_program:  # of the scheduler before this one
            root.removeHandler(handler)
            handler.close()
        _for_the_program[:] = self._made()
        for handler in _for_the_program:
            root.addHandler(handler)
        root.setLevel(logging.INFO)

    def _made(self) -> list[logging.Handler]:
        console = logging.StreamHandler()
        console.setFormatter(logging.Formatter(_ON_STDERR, None if self._path else _DATE))
        if self._path is None:
            return [console]
        file = logging.FileHandler(self._path, encoding="utf-8", errors="backslashreplace")
        file.setFormatter(logging.Formatter(_IN_FILE, _DATE))
        return [file, console]

    def __enter__(self) -> SchedulerLog:
        self._handlers = self._made()
        return self

    def __exit__(self, *_: Any) -> None:
        for handler in self._handlers:
            handler.close()
        self._handlers = []

    def receives(self, slot: str, task: str) -> None:
        self._write("receives", f"{slot} receives task {task}")

    def skips(self, slot: str, task: str) -> None:
        self._write("skips", f"{slot} skips task {task}")

    def finishes(self, slot: str, task: str) -> None:
        self._write("finishes", f"{slot} finishes task {task}")

    def finished(self, slot: str) -> None:
        self._write("finished", f"{slot} finished")

    def fails(self, slot: str, task: str, why: str) -> None:
        """A line of ours: theirs tell nothing of it."""
        self._write("fails", f"{slot} fails task {task}: {why}", logging.ERROR)

    def says(self, text: str) -> None:
        self._write("receives", text, logging.WARNING)

    def _write(self, where: str, text: str, level: int = logging.INFO) -> None:
        record = logging.LogRecord("root", level, _SOURCE, _LINES[where], text, (), None)
        for handler in self._handlers:
            handler.handle(record)
        # Whoever configured logging hears of it too, but not a second time where we write already.
        if logging.root.isEnabledFor(level):
            for handler in logging.root.handlers:
                if level >= handler.level and not _is_ours(handler):
                    handler.handle(record)


def _is_ours(handler: logging.Handler) -> bool:
    return handler in _for_the_program or getattr(handler, "stream", None) is sys.stderr
