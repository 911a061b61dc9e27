"""Shell completion on a box: the words for a command, within a few seconds or not at all."""

from __future__ import annotations

import subprocess

from stoker.errors import Error
from stoker.features.remote.boxes import Box
from stoker.features.remote.connection import Connection, Lost

_SECONDS = 4.0


def remote_words(box: Box, kind: str, current: str, given: list[str]) -> list[tuple[str, str]]:
    """Return words and descriptions that the box offers. Asks no password; empty if that fails."""
    connection = Connection(box, is_batch=True)
    try:
        connection.open(is_quiet=True)
        words = ["box", "words", "{}", kind, current, *given]
        done = connection.capture(words, timeout=_SECONDS)
    except (Error, Lost, subprocess.TimeoutExpired):
        return []
    if done.code != 0:
        return []
    lines = done.out.decode("utf-8", "replace").splitlines()
    return [(word, text) for word, _, text in (line.partition("\t") for line in lines)]
