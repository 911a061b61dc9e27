"""Start to read the code of the current folder before the modules of a submit are imported.

Git then runs while Python imports, which takes about as long.
"""

from __future__ import annotations

import os

from stoker.code.repository import find_repository

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.code.state_reader import PendingState

_started: dict[str, PendingState] = {}  # by folder


def begin_reading() -> None:
    """Start git in the current folder, if it is in a git repository."""
    try:
        folder = os.getcwd()
    except OSError:
        return  # the folder was removed; the submit says so
    repository = find_repository(folder)
    if repository is not None:
        from stoker.code.state_reader import begin

        _started[folder] = begin(repository)


def take_reading(folder: str) -> PendingState | None:
    """What was started for a folder; None if nothing was."""
    return _started.pop(folder, None)


def cancel_readings() -> None:
    """End what was started and not taken."""
    while _started:
        _started.popitem()[1].cancel()
