"""The runner's journal (write-ahead log): which attempts began and how they ended.

A text file in preallocated segments, so that an exit code can be recorded even on a full disk. Only
the runner writes it. The daemon reads it after a crash of either side, and removes segments whose
content is in the database.

    begun ATTEMPT JOB NUMBER AT MONO BOOT DEVICES
    spawned ATTEMPT PID STARTED              (its first process)
    exited ATTEMPT STATUS AT USER SYSTEM RSS REASON   (its first process; others may be left)
    ended ATTEMPT STATUS AT USER SYSTEM RSS REASON DETAIL
    undone ATTEMPT WHY                       (the host refused; nothing ran)

The format is frozen as version 1: a newer daemon reads the journals of older runners.
Readers skip unknown kinds of lines.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from stoker.engine.model import Outcome
from stoker.engine.supervisor.messages import AttemptStarted, Order, Refused
from stoker.record import Record
from stoker.text.byte_text import to_bytes, to_text

_HEADER = b"stoker-journal 1\n"
SEGMENT_BYTES = 1 << 20
# Space that `begun` never uses, so that the ends of all running jobs fit on a full disk.
_RESERVE_BYTES = 256 << 10


class JournalBegun(Record):
    attempt: int
    job: int
    number: int
    at: float
    mono: float
    boot: str
    devices: tuple[int, ...]


class JournalSpawned(Record):
    attempt: int
    pid: int
    started: int


class JournalExited(Record):
    """The first process of an attempt exited; other processes may be left."""

    outcome: Outcome

    @property
    def attempt(self) -> int:
        return self.outcome.attempt


JournalRecord = JournalBegun | JournalSpawned | JournalExited | Outcome | Refused


class JournalFull(Exception):
    """A start cannot be recorded: no space for another segment, or the disk is not writable."""


class Journal:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._descriptor = -1
        self._offset = 0
        self.segment = max(segments(folder), default=0)
        self._roll()

    def begun(self, order: Order, at: float, mono: float, boot: str) -> bool:
        """Record a start before it happens; True if that opened a new segment."""
        rolled = False
        if self._offset > SEGMENT_BYTES - _RESERVE_BYTES:
            try:
                self._roll()
                rolled = True
            except OSError as error:
                raise JournalFull(error.strerror) from None
        devices = ",".join(map(str, order.devices)) or "-"
        try:
            self._write(
                f"begun {order.attempt} {order.job} {order.number} {at:.6f} {mono:.6f} {boot}"
                f" {devices}"
            )
        except OSError as error:
            raise JournalFull(error.strerror) from None
        return rolled

    def spawned(self, started: AttemptStarted) -> None:
        """Record the first process, unless only the space reserved for ends is left."""
        if started.pid_started and self._offset <= SEGMENT_BYTES - _RESERVE_BYTES:
            self._write(f"spawned {started.attempt} {started.pid} {started.pid_started}")

    def exited(self, outcome: Outcome) -> None:
        """Record the exit of a first process whose leftovers may still run."""
        self._write(f"exited {_outcome_words(outcome)}")

    def record(self, end: Outcome | Refused) -> None:
        """Record how an attempt ended; raises OSError if that cannot be written now.

        A failed call can be repeated: readers ignore an incomplete record.
        """
        if isinstance(end, Outcome):
            self.ended(end)
        else:
            self.undone(end)

    def ended(self, outcome: Outcome) -> None:
        self._write(f"ended {_outcome_words(outcome)}")

    def undone(self, refused: Refused) -> None:
        self._write(f"undone {refused.attempt} {refused.why}")

    def _write(self, line: str) -> None:
        data = to_bytes(line.rstrip()) + b"\n"
        written = os.pwrite(self._descriptor, data, self._offset)
        if written < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._offset += len(data)

    def _roll(self) -> None:
        path = os.path.join(self._folder, f"journal-{self.segment + 1}")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, SEGMENT_BYTES)
            os.pwrite(descriptor, _HEADER, 0)
        except OSError:
            os.close(descriptor)
            os.unlink(path)
            raise
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._offset = descriptor, len(_HEADER)
        self.segment += 1


def segments(folder: str) -> list[int]:
    """The numbers of all segments, oldest first."""
    numbers = [
        int(name.removeprefix("journal-"))
        for name in os.listdir(folder)
        if name.startswith("journal-") and name.removeprefix("journal-").isdigit()
    ]
    return sorted(numbers)


def remove_before(folder: str, segment: int) -> None:
    """Remove older segments, whose content is in the database."""
    for number in segments(folder):
        if number < segment:
            os.unlink(os.path.join(folder, f"journal-{number}"))


def _outcome_words(outcome: Outcome) -> str:
    detail = (outcome.detail or "").replace("\n", " ")[:400]
    return (
        f"{outcome.attempt} {'-' if outcome.status is None else outcome.status}"
        f" {outcome.ended_at:.6f} {outcome.user_seconds:.6f} {outcome.system_seconds:.6f}"
        f" {outcome.max_rss_bytes} {outcome.reason or '-'} {detail}"
    )


def read_journal(folder: str) -> Iterator[JournalRecord]:
    """All complete records of all segments, in order. An incomplete last line is skipped."""
    for number in segments(folder):
        with open(os.path.join(folder, f"journal-{number}"), "rb") as file:
            data = file.read()
        text = data[: data.find(b"\0")] if b"\0" in data else data
        lines = text.split(b"\n")[:-1]
        for line in lines[1:]:
            record = _parse(to_text(line))
            if record is not None:
                yield record


def _parse(line: str) -> JournalRecord | None:
    kind, _, rest = line.partition(" ")
    try:
        if kind == "begun":
            attempt, job, number, at, mono, boot, devices = rest.split(" ")[:7]
            indices = tuple(int(d) for d in devices.split(",")) if devices != "-" else ()
            return JournalBegun(
                attempt=int(attempt),
                job=int(job),
                number=int(number),
                at=float(at),
                mono=float(mono),
                boot=boot,
                devices=indices,
            )
        if kind == "spawned":
            attempt, pid, started = rest.split(" ")[:3]
            return JournalSpawned(int(attempt), int(pid), int(started))
        if kind == "exited":
            return JournalExited(_parse_outcome(rest))
        if kind == "ended":
            return _parse_outcome(rest)
        if kind == "undone":
            attempt, _, why = rest.partition(" ")
            return Refused(int(attempt), why)
    except ValueError:
        pass
    return None


def _parse_outcome(text: str) -> Outcome:
    attempt, status, at, user, system, rss, reason, detail = [*text.split(" ", 7), ""][:8]
    return Outcome(
        attempt=int(attempt),
        status=None if status == "-" else int(status),
        ended_at=float(at),
        reason=None if reason == "-" else reason,
        user_seconds=float(user),
        system_seconds=float(system),
        max_rss_bytes=int(rss),
        detail=detail or None,
    )
