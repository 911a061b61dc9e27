"""What `hog` says, through `logging`: as it always looked on stdout, with times in a file."""

from __future__ import annotations

import logging
import sys

from stoker.compat.foreground.entry import write_line, write_notice
from stoker.compat.hog.options import Unusable

LOGGER = logging.getLogger("hog")


class _Stdout(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING:
            write_line(record.getMessage())
        else:  # scripts that read stdout do not know these
            write_notice(record.getMessage())


class _File(logging.FileHandler):
    def __init__(self, path: str) -> None:
        # The encoding of commands, so that their bytes are what they were.
        super().__init__(path, encoding=sys.getfilesystemencoding(), errors="surrogateescape")

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk: the jobs go on, and a traceback for each line would help nobody."""


class Console:
    def __init__(self, log_file: str | None) -> None:
        LOGGER.setLevel(logging.INFO)
        LOGGER.propagate = False
        LOGGER.handlers = [_Stdout()]
        if log_file is not None:
            try:
                file = _File(log_file)
            except OSError as error:
                raise Unusable(f"cannot write the log file `{log_file}`: "
                               f"{error.strerror}") from None  # fmt: skip
            file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
            LOGGER.addHandler(file)

    def say(self, text: str) -> None:
        LOGGER.info("%s", text)

    def warn(self, text: str) -> None:
        LOGGER.warning("%s", text)
