"""Pass sys.path of the submitter to the job, so that it imports the same modules."""

from __future__ import annotations

import os
import sys

from stoker.engine.snapshot_context import SNAPSHOT_DIR, SNAPSHOT_OF, moved


def own_path() -> list[str]:
    """sys.path of this process with absolute paths."""
    path = []
    for entry in sys.path:
        try:
            path.append(os.path.abspath(entry))  # "" is the current folder
        except (FileNotFoundError, TypeError):
            continue  # the current folder was deleted, or the entry is not a path
    return path


def extend_path(sent: list[str]) -> None:
    """Add the submitter's entries to sys.path: those before the first common entry go to the front,
    the others to the end. In a snapshot, folders of the work tree are replaced by their copies."""
    tree, root = os.environ.get(SNAPSHOT_DIR), os.environ.get(SNAPSHOT_OF)
    if tree and root:
        sent = [moved(entry, root, tree) for entry in sent]
    own = set(sys.path)
    common = next((i for i, entry in enumerate(sent) if entry in own), len(sent))
    sys.path[:] = [
        *sent[:common],
        *sys.path,
        *(entry for entry in sent[common:] if entry not in own),
    ]
