"""Folders of function jobs that are needed no more, because their jobs were removed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from stoker.core.text import unpack_words
from stoker.functions import vault
from stoker.functions.call import folder_of
from stoker.store.database import Database


def folders_of(db: Database, ids: Iterable[int]) -> set[str]:
    """Where the calls of these jobs are; call it before they are removed."""
    return _folders(db, " AND id IN (SELECT value FROM json_each(?))", (json.dumps(list(ids)),))


def drop(db: Database, folders: set[str], gone: Iterable[int]) -> None:
    """Delete the results of removed jobs, and folders that no job needs any more."""
    unused = folders - _folders(db)
    for folder in folders:
        if folder in unused:
            vault.remove_folder(folder)
            continue
        for job in gone:
            try:
                os.unlink(os.path.join(folder, vault.result_name(job)))
            except OSError:
                pass


def _folders(db: Database, where: str = "", values: tuple[object, ...] = ()) -> set[str]:
    rows = db.execute(
        "SELECT argv FROM jobs WHERE shell = 0 AND"
        f" instr(argv, CAST('stoker.functions.call' AS BLOB)) > 0{where}",
        values,
    )
    named = {folder_of(unpack_words(row[0])) for row in rows}
    if not where:  # a sweep may still want to call its function
        for (spec,) in db.execute("SELECT spec FROM sweeps"):
            named.add(folder_of(tuple(json.loads(spec)["template"]["words"])))
    # A command can name any folder; only our own are ours to delete.
    calls = os.path.join(db.folder, "calls")
    return {folder for folder in named if folder and os.path.dirname(folder) == calls}
