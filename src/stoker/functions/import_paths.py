"""Where modules are found: the submitter's sys.path, and a job that has to find the same ones."""

from __future__ import annotations

import os
import sys


def own_path() -> list[str]:
    """sys.path in a form that means the same in another folder."""
    path = []
    for entry in sys.path:
        try:
            path.append(os.path.abspath(entry))  # "" is the folder we are in
        except (FileNotFoundError, TypeError):
            continue  # that folder is gone, or it is no path
    return path


def extend_path(sent: list[str]) -> None:
    """Folders that the submitter had before its first usual one go first, all others last."""
    own = set(sys.path)
    usual = next((i for i, entry in enumerate(sent) if entry in own), len(sent))
    sys.path[:] = [
        *sent[:usual],
        *sys.path,
        *(entry for entry in sent[usual:] if entry not in own),
    ]
