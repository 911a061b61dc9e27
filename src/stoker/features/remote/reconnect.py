"""Connect again after a connection was lost."""

from __future__ import annotations

import os
import time

from stoker.errors import Error, Unavailable, UsageError
from stoker.features.remote.connection import Connection
from stoker.text.durations import parse_duration

_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 15.0
_DEFAULT_SECONDS = 3600.0
_ANSWER_SECONDS = 30.0  # for one try: a machine that hangs accepts connections but never answers


def patience() -> float:
    """For how many seconds to try: an hour, or STOKER_RECONNECT. Raises UsageError."""
    text = os.environ.get("STOKER_RECONNECT")
    if not text:
        return _DEFAULT_SECONDS
    try:
        return parse_duration(text, "s")
    except Error as error:
        raise UsageError(f"STOKER_RECONNECT: {error.message}", error.hint) from None


def reconnect(connection: Connection) -> None:
    """Try to connect until it works. Raises Unavailable after `patience` seconds."""
    end = time.monotonic() + patience()
    pause = _PAUSE_SECONDS
    while True:
        try:
            left = end - time.monotonic()
            connection.open(is_quiet=True, timeout=min(left, _ANSWER_SECONDS))
            return
        except Unavailable:
            if time.monotonic() >= end:
                raise
        time.sleep(min(pause, max(0.0, end - time.monotonic())))
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
