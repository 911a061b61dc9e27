"""Reports out of files that grow: they are read piece by piece, and reading can go on later."""

from __future__ import annotations

import re
from collections.abc import Mapping

from stoker.core.metrics.report_line import (
    LONGEST_LINE,
    PREFIX,
    InvalidReport,
    Report,
    read_json_line,
    read_printed_line,
)
from stoker.core.record import Record

_LINE_END = re.compile(rb"[\r\n]")


class InvalidLine(Record):
    source: str  # metrics or log
    line: int
    reason: str


class Reader:
    """Bytes of one growing file in, reports out; the pieces may be cut anywhere.

    `offset` is where a reader that was put away goes on; `position` where this one does.
    """

    source = ""

    def __init__(self) -> None:
        self.offset = 0
        self.rubbish = 0
        self.complaint: InvalidLine | None = None  # the first
        self._lines = 0  # that have ended
        self._skips = False  # the rest of the line that has begun is of no interest
        self._tail = b""

    @property
    def position(self) -> int:
        return self.offset + len(self._tail)

    def feed(self, data: bytes) -> list[Report]:
        raise NotImplementedError

    def finish(self) -> list[Report]:
        """Nothing more will come: a last line without a line end counts too."""
        tail, self._tail = self._tail, b""
        self.offset += len(tail)
        self._skips = False
        return self._read(tail, self._lines + 1)

    def _read(self, line: bytes, number: int) -> list[Report]:
        raise NotImplementedError

    def _complain(self, number: int, reason: str) -> None:
        self.rubbish += 1
        if self.complaint is None:
            self.complaint = InvalidLine(self.source, number, reason)

    def _keep(self, buffer: bytes, start: int) -> None:
        """Everything before `start` is read; the line that begins there has not ended."""
        tail = b"" if self._skips else buffer[start:]
        if len(tail) > LONGEST_LINE:
            self._complain(self._lines + 1, f"a line of more than {LONGEST_LINE} bytes")
            self._skips = True
            tail = b""
        self.offset += len(buffer) - len(tail)
        self._tail = tail

    def state(self) -> dict[str, object]:
        return {
            "offset": self.offset,
            "rubbish": self.rubbish,
            "complaint": self.complaint,
            "lines": self._lines,
            "skips": self._skips,
        }

    def restore(self, state: Mapping[str, object]) -> None:
        self.offset = whole(state["offset"])
        self.rubbish = whole(state["rubbish"])
        complaint = state["complaint"]
        if isinstance(complaint, list):
            self.complaint = InvalidLine(str(complaint[0]), whole(complaint[1]), str(complaint[2]))
        self._lines = whole(state["lines"])
        self._skips = bool(state["skips"])


class MetricsReader(Reader):
    """Of $STOKER_METRICS."""

    source = "metrics"

    def feed(self, data: bytes) -> list[Report]:
        reports: list[Report] = []
        buffer = self._tail + data
        start = 0
        while (end := buffer.find(b"\n", start)) >= 0:
            if not self._skips:
                reports += self._read(buffer[start:end], self._lines + 1)
            self._skips = False
            self._lines += 1
            start = end + 1
        self._keep(buffer, start)
        return reports

    def _read(self, line: bytes, number: int) -> list[Report]:
        line = line.strip()
        if not line:
            return []
        try:
            return [read_json_line(line)]
        except InvalidReport as error:
            self._complain(number, str(error))
        # A job that was killed while it wrote leaves half a line, and the next attempt writes on.
        again = line.rfind(b"{", 1)
        if again > 0 and len(line) <= LONGEST_LINE:
            try:
                return [read_json_line(line[again:])]
            except InvalidReport:
                pass
        return []


class LogReader(Reader):
    """Of a log. A carriage return ends a line too: progress bars write megabytes without any other.

    Everything but the few lines that are ours is passed over at the speed of bytes.find.
    """

    source = "log"

    def feed(self, data: bytes) -> list[Report]:
        reports: list[Report] = []
        buffer = self._tail + data
        end = max(buffer.rfind(b"\n"), buffer.rfind(b"\r")) + 1
        at = buffer.find(PREFIX, 0, end)
        while at >= 0:
            if buffer[at - 1] in b"\r\n" if at else not self._skips:
                found = _LINE_END.search(buffer, at)
                assert found is not None
                complaints = self.rubbish
                reports += self._read(buffer[at : found.start()], 0)
                if self.rubbish > complaints == 0 and self.complaint is not None:
                    number = self._lines + buffer.count(b"\n", 0, at) + 1
                    self.complaint = self.complaint._replace(line=number)
            at = buffer.find(PREFIX, at + 1, end)
        if end:
            self._skips = False
            self._lines += buffer.count(b"\n", 0, end)
        tail = buffer[end : end + len(PREFIX)]
        if not PREFIX.startswith(tail):
            self._skips = True
        self._keep(buffer, end)
        return reports

    def _read(self, line: bytes, number: int) -> list[Report]:
        try:
            report = read_printed_line(line)
        except InvalidReport as error:
            self._complain(number, str(error))
            return []
        return [] if report is None else [report]


def whole(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value
