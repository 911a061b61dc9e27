"""What a job may look like: the fields of a submission, and how a job stands."""

from __future__ import annotations

import os
from collections.abc import Mapping

from stoker.core.formats.byte_text import to_bytes
from stoker.core.record import Record
from stoker.core.states import FINAL
from stoker.store.job_queries import JobRow

DEFAULT_PRIORITY = 30  # "reduces to a regular queue", as the project's own plan has it
_MAX_PRIORITY = 1 << 31
_NEEDED = ("outFile", "jobName", "jobCommand")


class PeasySubmission(Record):
    """A submission that makes sense. `out` is as it was given, relative ones included."""

    name: str
    out: str
    argv: tuple[str, ...]
    priority: int = DEFAULT_PRIORITY
    restartable: bool = False
    retries: int = 0


class Refused(Exception):
    """Why a job is not taken, in the words that clients know; `place` is its place in a batch."""

    def __init__(self, message: str, place: int | None = None) -> None:
        super().__init__(message)
        self.place = place


def wanted(job: object) -> PeasySubmission:
    """The fields of a job as they came in JSON, checked in the order that clients expect."""
    fields: Mapping[str, object] = job if isinstance(job, dict) else {}
    for key in _NEEDED:
        if key not in fields:
            raise Refused(f"Key '{key}' not found")
    name, out, command = fields["jobName"], fields["outFile"], fields["jobCommand"]
    if not command:
        raise Refused("No jobs were submitted")
    if not isinstance(name, str) or not name:
        raise Refused("No job name was provided")
    if not isinstance(out, str) or not out:
        raise Refused("Output file not specified")
    # A text is taken for its letters, as it always was; it has to be a list of words.
    words = list(command) if isinstance(command, (list, str)) else []
    if not words or not all(_is_text(word) for word in words):
        raise Refused("Key 'jobCommand' has to be a list of strings")
    if not _is_text(name):
        raise Refused("No job name was provided")
    return PeasySubmission(
        name, out, tuple(words), priority_of(fields.get("priority", DEFAULT_PRIORITY)),
        bool(fields.get("checkpoint", False)), _retries(fields.get("retries", 0)),
    )  # fmt: skip


def priority_of(value: object) -> int:
    number = _whole(value)
    if number is None or not -_MAX_PRIORITY < number < _MAX_PRIORITY:
        raise Refused(f"Priority is not a number: {value}")
    return number


def _retries(value: object) -> int:
    number = _whole(value)
    if number is None or not 0 <= number <= 1000:
        raise Refused(f"Retries is not a number: {value}")
    return number


def _whole(value: object) -> int | None:
    if isinstance(value, int):
        return int(value)
    try:
        return int(value) if isinstance(value, str) and len(value) < 20 else None
    except ValueError:
        return None


def _is_text(word: object) -> bool:
    """Whether a process could be given this."""
    if not isinstance(word, str) or "\0" in word:
        return False
    try:
        to_bytes(word)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


# -- how a job stands, for clients ----------------------------------------------------------------


def status_of(row: JobRow) -> str:
    if row.state in ("held", "queued"):
        return "Scheduled"
    if row.state not in FINAL:
        return "Running"
    return "Succeeded" if row.state == "done" else "Failed"


def return_code(row: JobRow) -> int | None:
    """The exit code; negative for a signal; -1 when there was never a process, or nobody saw it."""
    if row.state not in FINAL:
        return None
    cause = row.cause or row.attempt_cause
    if cause == "start_failed" or row.status is None:
        return -1
    signal = row.status & 0x7F
    return -signal if signal else row.status >> 8 & 0xFF


def shown_out(row: JobRow) -> str:
    """The output file as it was given: a relative one is kept as `<folder>/./<name>`."""
    return (row.stdout or "").removeprefix(os.path.join(row.cwd, ".", ""))
