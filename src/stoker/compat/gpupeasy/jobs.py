"""Validation of submissions, and the status of jobs as clients see it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from stoker.core.formats.byte_text import to_bytes
from stoker.core.outcome.wait_status import exit_code_of, signal_of
from stoker.core.record import Record
from stoker.core.states import FINAL
from stoker.store.job_queries import JobRow

DEFAULT_PRIORITY = 30  # the value of the original's plan, with which the queue is FIFO
_MAX_PRIORITY = 1 << 31
_REQUIRED = ("outFile", "jobName", "jobCommand")


class PeasySubmission(Record):
    """A valid submission. `out` is the path as given, possibly relative."""

    name: str
    out: str
    argv: tuple[str, ...]
    priority: int = DEFAULT_PRIORITY
    restartable: bool = False
    retries: int = 0


class InvalidSubmission(Exception):
    """A job is refused, with the message of the original; `index` is its index in a batch."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


def parse_submission(job: object) -> PeasySubmission:
    """Validate the JSON fields of a job, in the order of the original. Raises InvalidSubmission."""
    fields: Mapping[str, object] = job if isinstance(job, dict) else {}
    for key in _REQUIRED:
        if key not in fields:
            raise InvalidSubmission(f"Key '{key}' not found")
    name, out, command = fields["jobName"], fields["outFile"], fields["jobCommand"]
    if not command:
        raise InvalidSubmission("No jobs were submitted")
    if not isinstance(name, str) or not name:
        raise InvalidSubmission("No job name was provided")
    if not isinstance(out, str) or not out:
        raise InvalidSubmission("Output file not specified")
    # A string is split into its letters, as in the original.
    words = list(command) if isinstance(command, (list, str)) else []
    if not words or not all(_is_argument(word) for word in words):
        raise InvalidSubmission("Key 'jobCommand' has to be a list of strings")
    if not _is_argument(name):
        raise InvalidSubmission("No job name was provided")
    return PeasySubmission(
        name,
        out,
        tuple(words),
        priority_of(fields.get("priority", DEFAULT_PRIORITY)),
        bool(fields.get("checkpoint", False)),
        _retries(fields.get("retries", 0)),
    )


def priority_of(value: object) -> int:
    number = _integer(value)
    if number is None or not -_MAX_PRIORITY < number < _MAX_PRIORITY:
        raise InvalidSubmission(f"Priority is not a number: {value}")
    return number


def _retries(value: object) -> int:
    number = _integer(value)
    if number is None or not 0 <= number <= 1000:
        raise InvalidSubmission(f"Retries is not a number: {value}")
    return number


def _integer(value: object) -> int | None:
    if isinstance(value, int):
        return int(value)
    try:
        return int(value) if isinstance(value, str) and len(value) < 20 else None
    except ValueError:
        return None


def _is_argument(word: object) -> bool:
    """Whether the value can be an argument of a process."""
    if not isinstance(word, str) or "\0" in word:
        return False
    try:
        to_bytes(word)
    except UnicodeEncodeError:  # an unpaired surrogate
        return False
    return True


# -- status ---------------------------------------------------------------------------------------


def status_of(row: JobRow) -> str:
    if row.state in ("held", "queued"):
        return "Scheduled"
    if row.state not in FINAL:
        return "Running"
    return "Succeeded" if row.state == "done" else "Failed"


def return_code(row: JobRow) -> int | None:
    """The exit code; negative for a signal; -1 if the process never started or is lost."""
    if row.state not in FINAL:
        return None
    cause = row.cause or row.attempt_cause
    if cause == "start_failed" or row.status is None:
        return -1
    signal = signal_of(row.status)
    return -signal if signal else exit_code_of(row.status)


def shown_out(row: JobRow) -> str:
    """The output file as given: a relative path is stored as `<folder>/./<name>`."""
    return (row.stdout or "").removeprefix(os.path.join(row.cwd, ".", ""))
