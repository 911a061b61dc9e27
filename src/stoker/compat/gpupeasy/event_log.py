"""`<logdir>/logs.out`: one line per event, with the texts of the original."""

from __future__ import annotations

import os
import time

NAME = "logs.out"
_WIDTH = 8


class EventLog:
    """Appends whole lines, so that the server and its daemon can both write to the file."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, NAME)

    def write(self, level: str, *words: object) -> None:
        stamp = time.strftime("%d/%b/%Y %H:%M:%S")
        text = " ".join(str(word) for word in words).replace("\n", " ").replace("\r", " ")
        line = f"[{stamp}] [{level:<{_WIDTH}}]:  {text}\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(self.path, flags, 0o600)
        except OSError:
            return  # a full disk or a removed folder must not stop the queue
        try:
            os.write(descriptor, line.encode("utf-8", "replace"))
        except OSError:
            pass
        finally:
            os.close(descriptor)


def label(id: int, name: str | None) -> str:
    """How a job is named in the log.

    >>> label(1, "a")
    '<1, a>'
    """
    return f"<{id}, {name}>"
