"""Names and states of many jobs at once, for the timeline of GPUs."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.engine.store.database import Database, id_list
from stoker.record import Record
from stoker.text.byte_text import maybe_text, unpack_words
from stoker.text.commands.shell_words import display

_MAX_CHARACTERS = 80


class JobLabel(Record):
    """What the timeline shows of a job. `title` is its name, or its command."""

    title: str
    state: str


def job_labels(db: Database, ids: Iterable[int]) -> dict[int, JobLabel]:
    """Return the jobs that still exist, by id."""
    rows = db.execute(
        "SELECT id, name, argv, shell, state FROM jobs"
        " WHERE id IN (SELECT value FROM json_each(?))",
        (id_list(ids),),
    )
    return {
        id: JobLabel(
            title=(maybe_text(name) or display(unpack_words(argv), bool(shell)))[:_MAX_CHARACTERS],
            state=state,
        )
        for id, name, argv, shell, state in rows
    }
