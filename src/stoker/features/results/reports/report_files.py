"""Parse reports from growing files in chunks; the state of a reader can be saved and restored."""

from __future__ import annotations

import re
from collections.abc import Mapping

from stoker.features.results.reports.report_block import ReportBlock, parse_block
from stoker.record import Record
from stoker.text.progress.report_line import (
    MAX_LINE_LENGTH,
    PREFIX,
    InvalidReport,
    Report,
    read_json_line,
    read_printed_line,
)

_LINE_END = re.compile(rb"[\r\n]")


class InvalidLine(Record):
    source: str  # metrics or log
    line: int
    reason: str


class Reader:
    """Parses the bytes of one growing file into reports; chunks may be cut anywhere.

    `offset` is where a restored reader must continue; `position` is where this one continues.
    """

    source = ""

    def __init__(self) -> None:
        self.offset = 0
        self.invalid_lines = 0
        self.first_invalid: InvalidLine | None = None
        self._lines = 0  # complete lines so far
        self._skips = False  # ignore the rest of the current line
        self._tail = b""

    @property
    def position(self) -> int:
        return self.offset + len(self._tail)

    def feed(self, data: bytes) -> list[Report]:
        raise NotImplementedError

    def finish(self) -> list[Report]:
        """Parse a last line that has no line end; call it when the file is complete."""
        tail, self._tail = self._tail, b""
        self.offset += len(tail)
        self._skips = False
        return self._read(tail, self._lines + 1)

    def _read(self, line: bytes, number: int) -> list[Report]:
        raise NotImplementedError

    def _record_invalid(self, number: int, reason: str) -> None:
        self.invalid_lines += 1
        if self.first_invalid is None:
            self.first_invalid = InvalidLine(self.source, number, reason)

    def _keep(self, buffer: bytes, start: int) -> None:
        """Keep the incomplete line that begins at `start`; everything before it is parsed."""
        tail = b"" if self._skips else buffer[start:]
        if len(tail) > MAX_LINE_LENGTH:
            self._record_invalid(self._lines + 1, f"a line of more than {MAX_LINE_LENGTH} bytes")
            self._skips = True
            tail = b""
        self.offset += len(buffer) - len(tail)
        self._tail = tail

    def state(self) -> dict[str, object]:
        return {
            "offset": self.offset,
            "invalid_lines": self.invalid_lines,
            "first_invalid": self.first_invalid,
            "lines": self._lines,
            "skips": self._skips,
        }

    def restore(self, state: Mapping[str, object]) -> None:
        self.offset = whole(state["offset"])
        self.invalid_lines = whole(state["invalid_lines"])
        first = state["first_invalid"]
        if isinstance(first, list):
            self.first_invalid = InvalidLine(str(first[0]), whole(first[1]), str(first[2]))
        self._lines = whole(state["lines"])
        self._skips = bool(state["skips"])


class MetricsReader(Reader):
    """Parses the JSON lines of $STOKER_METRICS."""

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

    def block(self, data: bytes) -> ReportBlock | None:
        """Parse the complete lines of a chunk at once; None: `feed` it. Nothing is taken until the
        caller calls `take`."""
        buffer = self._tail + data
        end = buffer.rfind(b"\n") + 1
        return None if self._skips or not end else parse_block(buffer[:end])

    def take(self, data: bytes, block: ReportBlock) -> None:
        """Continue after a chunk that was parsed by `block`."""
        buffer = self._tail + data
        self._lines += len(block)
        self._keep(buffer, buffer.rfind(b"\n") + 1)

    def _read(self, line: bytes, number: int) -> list[Report]:
        line = line.strip()
        if not line:
            return []
        try:
            return [read_json_line(line)]
        except InvalidReport as error:
            self._record_invalid(number, str(error))
        # A job killed during a write leaves a partial line, and the next attempt appends to it.
        start = line.rfind(b"{", 1)
        if start > 0 and len(line) <= MAX_LINE_LENGTH:
            try:
                return [read_json_line(line[start:])]
            except InvalidReport:
                pass
        return []


class LogReader(Reader):
    """Parses the `stoker:` lines of a log.

    A carriage return ends a line too, because progress bars write megabytes without a newline. All
    other lines are skipped with bytes.find.
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
                before = self.invalid_lines
                reports += self._read(buffer[at : found.start()], 0)
                if self.invalid_lines > before == 0 and self.first_invalid is not None:
                    number = self._lines + buffer.count(b"\n", 0, at) + 1
                    self.first_invalid = self.first_invalid._replace(line=number)
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
            self._record_invalid(number, str(error))
            return []
        return [] if report is None else [report]


def whole(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return value
