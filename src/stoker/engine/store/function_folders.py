"""Delete the folders of function jobs after their jobs were removed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from stoker.engine.store.database import Database, id_list
from stoker.functions import payload_files
from stoker.functions.call import folder_of
from stoker.text.byte_text import unpack_words

_CALLS = (
    "SELECT id, argv FROM jobs WHERE shell = 0"
    " AND instr(argv, CAST('stoker.functions.call' AS BLOB)) > 0"
)


def folders_of(db: Database, ids: Iterable[int], places: Iterable[str]) -> dict[int, str]:
    """Return the call folder by job. Call this before the jobs are removed.

    `places`: the folders with files of jobs.
    """
    rows = db.execute(f"{_CALLS} AND id IN (SELECT value FROM json_each(?))", (id_list(ids),))
    calls = {os.path.join(folder, "calls") for folder in places}
    found = {int(job): folder_of(unpack_words(argv)) for job, argv in rows}
    # A command can contain any path; only folders of Stoker may be deleted.
    return {job: name for job, name in found.items() if name and os.path.dirname(name) in calls}


def drop(db: Database, folders: dict[int, str], gone: Iterable[int]) -> None:
    """Delete the results of removed jobs, and folders that no job or sweep uses."""
    if not folders:
        return
    used = {folder_of(unpack_words(argv)) for _, argv in db.execute(_CALLS)}
    for (spec,) in db.execute("SELECT spec FROM sweeps"):  # a sweep may start more trials
        used.add(folder_of(tuple(json.loads(spec)["template"]["words"])))
    for folder in set(folders.values()) - used:
        payload_files.remove_folder(folder)
    for job in gone:
        folder = folders.get(job, "")
        if folder in used:
            try:
                os.unlink(os.path.join(folder, payload_files.result_name(job)))
            except OSError:
                pass
