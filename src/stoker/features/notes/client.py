"""Notes, stars and tags of jobs and sweeps for all interfaces: limits, JSON and selection."""

from __future__ import annotations

import time

from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.errors import NotFound, UsageError
from stoker.features.notes import store as notes
from stoker.features.notes.store import JOB, SWEEP, Note
from stoker.features.sweeps import store as sweeps

MAX_BYTES = 64 << 10  # of a note
_LINE_CHARS = 120
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from stoker.client.queue import Queue
    from stoker.client.views.job_types import ShortNote
    from stoker.engine.store.job_queries import JobRow


class Targets:
    """Jobs and sweeps that a user named."""

    def __init__(self, jobs: list[int], sweeps: list[str]) -> None:
        self.jobs = jobs
        self.sweeps = sweeps

    def __len__(self) -> int:
        return len(self.jobs) + len(self.sweeps)


def only(target: int | str) -> Targets:
    """A single job (by id) or sweep (by name)."""
    return Targets([], [target]) if isinstance(target, str) else Targets([target], [])


def check_note(text: str) -> str:
    """Return a note without trailing white space. Raises UsageError if it cannot be stored."""
    from stoker.client.submit.option_values import check_text

    text = check_text(text, "the note").replace("\r\n", "\n").rstrip()
    size = len(text.encode("utf-8", "surrogateescape"))
    if size > MAX_BYTES:
        raise UsageError(
            f"the note has {size} bytes, and {MAX_BYTES} is the limit",
            "write a file beside the job's output and refer to it in the note",
        )
    return text


def first_line(text: str) -> str:
    """The first line of a note, cut to a length that fits into a cell."""
    line = text.strip().partition("\n")[0].strip()
    return line if len(line) <= _LINE_CHARS else line[: _LINE_CHARS - 1] + "…"


def note_line(db: Database, row: JobRow) -> ShortNote:
    """For lists of jobs: whether it has a star, and the first line of its note."""
    known = notes.note(db, JOB, row.id)
    return {"starred": known.starred, "note_line": first_line(known.text) or None}


def note_in_full(db: Database, row: JobRow) -> dict[str, Any]:
    """For one job in full."""
    return full_note_json(notes.note(db, JOB, row.id))


def full_note_json(known: Note) -> dict[str, Any]:
    """For one job or sweep: the whole note, and the text before the last edit."""
    from stoker.client.views.job import iso

    return {
        "note": known.text,
        "note_revision": known.revision,
        "note_changed_at": iso(known.changed_at),
        "previous_note": known.previous,
    }


def sweep_note_json(db: Database, sweep: int) -> dict[str, Any]:
    """For lists of sweeps: star, tags, and the first line of the note."""
    known = notes.note(db, SWEEP, sweep)
    return {
        "starred": known.starred,
        "tags": notes.tags(db, SWEEP, sweep),
        "note_line": first_line(known.text) or None,
    }


def owner(db: Database, target: int | str) -> tuple[str, int]:
    """Kind and id of a job (by id) or a sweep (by name), for `store.py`. Raises NotFound."""
    if isinstance(target, str):
        return SWEEP, sweeps.get(db, target).id
    return JOB, job_queries.job(db, target).id


def note_of(queue: Queue, target: int | str) -> Note:
    """The note of a job (by id) or a sweep (by name). Raises NotFound."""
    return notes.note(queue.db, *owner(queue.db, target))


def set_note(queue: Queue, target: int | str, text: str, *, is_continued: bool = False) -> Note:
    """Replace the note of a job (by id) or a sweep (by name); see `store.py`.

    Raises NotFound, and UsageError for a note that is too long or contains a NUL byte.
    """
    text = check_note(text)
    kind, id = owner(queue.db, target)
    with queue.db.transaction():
        return notes.set_note(queue.db, kind, id, text, time.time(), is_continued=is_continued)


def tag(queue: Queue, targets: Targets, add: Sequence[str], remove: Sequence[str]) -> int:
    """Add tags to jobs and sweeps and remove them; returns how many of these changed.

    Raises NotFound for an unknown sweep.
    """
    db, known = queue.db, _sweep_ids(queue.db, targets)
    with db.transaction():
        changed = sum(bool(notes.change_tags(db, SWEEP, sweep, add, remove)) for sweep in known)
    return changed + notes.tag_jobs(db, targets.jobs, add, remove, time.time())


def star(queue: Queue, targets: Targets, starred: bool = True) -> int:
    """Add stars to jobs and sweeps, or remove them; returns how many changed.

    Raises NotFound for an unknown sweep.
    """
    known = _sweep_ids(queue.db, targets)
    with queue.db.transaction():
        changed = notes.set_star(queue.db, SWEEP, known, starred)
        return changed + notes.set_star(queue.db, JOB, targets.jobs, starred)


def _sweep_ids(db: Database, targets: Targets) -> list[int]:
    return [sweeps.get(db, name).id for name in targets.sweeps]


def select_targets(queue: Queue, words: Iterable[str], names: Iterable[str] = ()) -> Targets:
    """The jobs that selectors match, and sweeps: `names`, and words that name a sweep and no job.

    Raises NotFound for a word that is neither, and UsageError for one that could be both.
    """
    jobs: set[int] = set()
    found = {sweeps.get(queue.db, name).name: None for name in names}
    for word in words:
        is_sweep = sweeps.by_name(queue.db, word) is not None
        try:
            selected = queue.select([word])
        except NotFound:
            if not is_sweep:
                raise _unknown(queue.db, word) from None
            selected = []
        if is_sweep and selected:
            raise UsageError(
                f"`{word}` is a sweep, and the name or tag of jobs",
                f"write --sweep {word} for the sweep, name:{word} or tag:{word} for the jobs",
            )
        jobs.update(selected)
        if is_sweep:
            found[word] = None
    return Targets(sorted(jobs), list(found))


def _unknown(db: Database, word: str) -> NotFound:
    if word.isdigit():
        return NotFound(f"there is no job {word}", "`stoker ls` shows the jobs")
    return NotFound(f"there is no job or sweep `{word}`", sweeps.near_name(db, word))
