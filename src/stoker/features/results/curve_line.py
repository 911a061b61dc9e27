"""`CurveLine`: the values of one metric of one job as arrays, which grow with its reports.

The rules are those of core.metrics: a later attempt replaces values from its first step on, and
reports without a step are numbered. If an attempt reports a step twice, the later value counts. NaN
is kept, so that a plot shows a gap.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable

from stoker.features.results.reports.report_block import Column, ReportBlock, increases
from stoker.features.results.reports.report_files import MetricsReader
from stoker.features.results.reports.summary import Timeline
from stoker.text.progress.report_line import Report, is_number

Point = tuple[float, float]
_NAN = math.nan


class CurveLine:
    """Sorted by step. `times` holds when each value was reported, in seconds since the epoch; NaN
    if the report has no time. `was_reported`: also true for a metric that never was a number."""

    __slots__ = ("steps", "timeline", "times", "values", "was_reported")

    def __init__(self) -> None:
        self.steps = array("d")
        self.values = array("d")
        self.times = array("d")
        self.timeline = Timeline()
        self.was_reported = False

    @property
    def size(self) -> int:
        """Approximate size in memory."""
        return 500 + 24 * len(self.steps)

    def copy(self) -> CurveLine:
        """The values so far; more reports cannot be added to the copy."""
        found = CurveLine()
        found.steps, found.values, found.times = self.steps[:], self.values[:], self.times[:]
        found.was_reported = self.was_reported
        return found

    def points(self) -> list[Point]:
        """(step, value) pairs; whole steps are integers."""
        return [(whole(step), value) for step, value in zip(self.steps, self.values, strict=True)]

    def add(self, name: str, reports: Iterable[Report], attempt: int | None) -> None:
        """Add the values of a metric; `attempt` is the default for reports without one."""
        for report in reports:
            value = report.values.get(name)
            if value is not None:
                number = attempt if report.attempt is None else report.attempt
                self._place(value, report.step, report.at, number)

    def add_column(self, column: Column, attempt: int | None) -> None:
        """Add many values at once, of an attempt that no later one has replaced."""
        if not column.values:
            return
        values = array("d", column.values)
        times = array("d", column.times or [_NAN]) * (1 if column.times else len(values))
        first = None if column.steps is None else column.steps[0]
        self._place(values[0], first, times[0], attempt)
        if column.steps is None:
            begin = self.timeline.implied
            self.timeline.implied += len(values) - 1
            steps = array("d", range(begin - 1, self.timeline.implied))
        else:
            steps = array("d", column.steps)
        if len(steps) > 1 and steps[1] > self.steps[-1] and increases(column.steps or []):
            self.steps += steps[1:]
            self.values += values[1:]
            self.times += times[1:]
        else:
            for place in range(1, len(steps)):
                self._insert(steps[place], values[place], times[place])

    def _place(
        self, value: object, step: float | None, at: float | None, attempt: int | None
    ) -> None:
        self.was_reported = True
        placed = self.timeline.place(step, attempt)
        if placed is None:
            return
        where, replaces = placed
        if replaces:
            self._cut(where)
        if is_number(value):
            self._insert(where, float(value), _NAN if at is None else at)

    def _cut(self, step: float) -> None:
        """Remove the values from this step on."""
        at = bisect_left(self.steps, step)
        del self.steps[at:], self.values[at:], self.times[at:]

    def _insert(self, step: float, value: float, at: float) -> None:
        if not self.steps or step > self.steps[-1]:
            self.steps.append(step)
            self.values.append(value)
            self.times.append(at)
            return
        place = bisect_left(self.steps, step)
        if self.steps[place] == step:
            self.values[place], self.times[place] = value, at
            return
        self.steps.insert(place, step)
        self.values.insert(place, value)
        self.times.insert(place, at)


def whole(number: float) -> float:
    """The same number, as an integer if it is one: steps are shown as `10`, not `10.0`."""
    return int(number) if number.is_integer() else number


def add_piece(lines: dict[str, CurveLine], reader: MetricsReader, piece: bytes) -> None:
    """Add a chunk of $STOKER_METRICS to the lines of some metrics."""
    block = reader.block(piece)
    if block is not None and _add_block(lines, block):
        reader.take(piece, block)
        return
    reports = reader.feed(piece)
    for name, line in lines.items():
        line.add(name, reports, None)


def _add_block(lines: dict[str, CurveLine], block: ReportBlock) -> bool:
    """Add many reports at once; returns False, and adds nothing, if that is not possible."""
    found = []
    for name, line in lines.items():
        column = block.column(name)
        if column is None or not line.timeline.is_newest(block.attempt):
            return False
        found.append((line, column))
    for line, column in found:
        line.add_column(column, block.attempt)
    return True
