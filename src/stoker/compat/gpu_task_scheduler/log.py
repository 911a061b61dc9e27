"""The lines of `scheduler.log` and of stderr, as GPU Task Scheduler writes them.

They include the source location in the original (`gpu_task_scheduler.py[line:53]`), because users'
programs parse these lines. Like the original, this also configures logging for the whole program,
unless the program already did: its own messages then go to the same places in the same format.
"""

from __future__ import annotations

import logging
import sys

_SOURCE = "gpu_task_scheduler.py"
_LINES = {"finished": 46, "receives": 53, "skips": 56, "fails": 88, "finishes": 93}
_DATE = "%a, %d %b %Y %H:%M:%S"
_IN_FILE = "%(asctime)s %(filename)s[line:%(lineno)d] %(levelname)s %(message)s"
_ON_STDERR = "%(asctime)s %(levelname)s %(message)s"
_root_handlers: list[logging.Handler] = []  # added to the root logger by us


class SchedulerLog:
    """Without a path, it writes to stderr only."""

    def __init__(self, path: str | None) -> None:
        console = logging.StreamHandler()
        console.setFormatter(logging.Formatter(_ON_STDERR, _DATE if path is None else None))
        self._handlers: list[logging.Handler] = [console]
        if path is not None:
            file = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
            file.setFormatter(logging.Formatter(_IN_FILE, _DATE))
            self._handlers.insert(0, file)
        root = logging.root
        if all(handler in _root_handlers for handler in root.handlers):  # not by the program
            for handler in _root_handlers:  # of an earlier scheduler
                root.removeHandler(handler)
                handler.close()
            _root_handlers[:] = self._handlers
            for handler in _root_handlers:
                root.addHandler(handler)
            root.setLevel(logging.INFO)

    def close(self) -> None:
        """Close the file unless the program writes to it too; the next line opens it again."""
        for handler in self._handlers:
            if handler not in _root_handlers:
                handler.close()

    def receives(self, slot: str, task: str) -> None:
        self._write("receives", f"{slot} receives task {task}")

    def skips(self, slot: str, task: str) -> None:
        self._write("skips", f"{slot} skips task {task}")

    def finishes(self, slot: str, task: str) -> None:
        self._write("finishes", f"{slot} finishes task {task}")

    def finished(self, slot: str) -> None:
        self._write("finished", f"{slot} finished")

    def fails(self, slot: str, task: str, reason: str) -> None:
        """Not in the original, which does not report failures."""
        self._write("fails", f"{slot} fails task {task}: {reason}", logging.ERROR)

    def notice(self, text: str) -> None:
        self._write("receives", text, logging.WARNING)

    def _write(self, kind: str, text: str, level: int = logging.INFO) -> None:
        record = logging.LogRecord("root", level, _SOURCE, _LINES[kind], text, (), None)
        for handler in self._handlers:
            handler.handle(record)
        # Also pass the record to the program's handlers, except those that write to stderr as well.
        if logging.root.isEnabledFor(level):
            for handler in logging.root.handlers:
                if level >= handler.level and not _writes_already(handler):
                    handler.handle(record)


def _writes_already(handler: logging.Handler) -> bool:
    return handler in _root_handlers or getattr(handler, "stream", None) is sys.stderr
