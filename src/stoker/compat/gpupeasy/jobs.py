"""Jobs as clients see them: validation, status, output files; and lists of devices."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping

from stoker.compat.foreground.gpu_slots import expand_range
from stoker.engine.outcome.wait_status import exit_code_of, signal_of
from stoker.engine.store.job_queries import JobRow
from stoker.record import Record
from stoker.states import FINAL
from stoker.text.byte_text import to_bytes

DEFAULT_PRIORITY = 30  # the value of the original's plan, with which the queue is FIFO
_MAX_PRIORITY = 1 << 31
_MAX_LOG_BYTES = 4 << 20
_BLOCK = 1 << 16
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
        _integer("Retries", fields.get("retries", 0), 0, 1001),
    )


def priority_of(value: object) -> int:
    return _integer("Priority", value, -_MAX_PRIORITY + 1, _MAX_PRIORITY)


def _integer(name: str, value: object, low: int, high: int) -> int:
    """The number, which may be text; raises InvalidSubmission."""
    try:
        number = int(value) if isinstance(value, (int, str)) and len(str(value)) < 20 else high
    except ValueError:
        number = high
    if not low <= number < high:
        raise InvalidSubmission(f"{name} is not a number: {value}")
    return number


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


# -- output files ----------------------------------------------------------------------------------


def same_file(path: str, folder: str) -> tuple[str, str]:
    """A key that is equal for all spellings of a path; symlinks are resolved except the last.

    >>> same_file("./o", "/") == same_file("/usr/../o", "/tmp") == ("/", "o")
    True
    """
    parent, name = os.path.split(os.path.join(folder, path))
    try:
        return os.path.realpath(parent), name
    except (OSError, ValueError):
        return parent, name


def find_by_output(out: str, rows: Iterable[JobRow]) -> JobRow | None:
    """The first job with this output file; relative paths are relative to the job's folder."""
    wanted: dict[str, tuple[str, str]] = {}
    resolved: dict[str, str] = {}  # folders as given -> real paths
    for row in rows:
        if not row.stdout or not out:
            continue
        if row.cwd not in wanted:
            wanted[row.cwd] = same_file(out, row.cwd)
        parent, name = os.path.split(row.stdout)
        if name != wanted[row.cwd][1]:
            continue
        if parent not in resolved:
            resolved[parent] = same_file(row.stdout, row.cwd)[0]
        if (resolved[parent], name) == wanted[row.cwd]:
            return row
    return None


def create(path: str, index: int | None = None) -> None:
    """Create a new file; never opens an existing file or a symlink. Raises InvalidSubmission."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.close(os.open(path, flags, 0o666))
    except (OSError, ValueError):
        raise InvalidSubmission(f"Could not open output file: {path}", index) from None


def last_lines(path: str, count: int) -> str:
    """The last lines of a file, read backwards from its end. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise OSError
        start, data = info.st_size, b""
        # The last newline may be missing, so look for one more newline than lines.
        while start > 0 and data[:-1].count(b"\n") < count and len(data) < _MAX_LOG_BYTES:
            size = min(_BLOCK, start)
            start -= size
            file.seek(start)
            data = file.read(size) + data
    parts = data.split(b"\n")  # not splitlines: a progress bar with \r is one line
    lines = [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    return b"".join(lines[-count:] if count else []).decode("utf-8", "replace")


# -- devices ---------------------------------------------------------------------------------------


def split_device_list(text: str) -> list[str]:
    """The devices in a list as `--gpus` takes it.

    >>> split_device_list("0;1;2,3"), split_device_list(""), split_device_list("0;")
    (['0', '1', '2,3'], [''], ['0', ''])
    >>> split_device_list("0 1;4-6"), split_device_list("-1;0")
    (['0', '1', '4', '5', '6'], ['-1', '0'])
    >>> split_device_list("GPU-0-2;2-3,4-5")
    ['GPU-0-2', '2-3,4-5']
    """
    words = [word for name in text.split(";") for word in name.split() or [""]]
    return [device for word in words for device in expand_range(word)]
