"""Shell completion on a box: the words for a command, within a few seconds or not at all."""

from __future__ import annotations

import subprocess
import sys

from stoker.errors import Error
from stoker.remote.boxes import Box
from stoker.remote.connection import Connection, Lost

_SECONDS = 4.0


def print_words(box: Box, words: list[str]) -> int:
    """Print the words that the box offers. Asks no password; prints nothing if that fails."""
    if words[1:2] != ["words"]:
        return 1  # the other actions are for the box itself
    connection = Connection(box, is_batch=True)
    try:
        connection.open(is_quiet=True)
        done = connection.capture(words, timeout=_SECONDS)
    except (Error, Lost, subprocess.TimeoutExpired):
        return 1
    sys.stdout.write(done.out.decode("utf-8", "replace") if done.code == 0 else "")
    return done.code
