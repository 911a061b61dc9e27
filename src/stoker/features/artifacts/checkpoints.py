"""Checkpoints of a job for its rerun."""

from __future__ import annotations

import os
import shutil

from stoker.client.queue import Queue
from stoker.client.views.job import checkpoint_folder
from stoker.engine.store import job_queries
from stoker.errors import Conflict


def check_checkpoints(queue: Queue, ids: list[int]) -> None:
    """Raise Conflict for a job without a folder of checkpoints."""
    for row in job_queries.jobs(queue.db, ids):
        folder = checkpoint_folder(queue.settings, row)
        if not os.path.isdir(folder):
            raise Conflict(
                f"job {row.id} has no checkpoints: there is no folder `{folder}`",
                f"rerun it without --resume: stoker rerun {row.id}",
            )


def copy_checkpoints(queue: Queue, old: int, new: int) -> None:
    """Give a rerun the checkpoints of the old job, as hard links where possible.

    Both jobs have them, so that the removal of one does not take them from the other. A trial and
    its rerun have the same folder anyway.
    """
    rows = job_queries.jobs(queue.db, [old, new])
    source, target = (checkpoint_folder(queue.settings, row) for row in rows)
    if source == target:
        return
    try:
        shutil.copytree(source, target, symlinks=True, copy_function=_link)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(target, ignore_errors=True)
        raise Conflict(
            f"the checkpoints of job {old} cannot be copied: {error}",
            f"its rerun is held; to let it start without them: stoker release {new}",
        ) from error


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
