"""The console lines of `hog`: as the original prints them on stdout, with times in a log file."""

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
