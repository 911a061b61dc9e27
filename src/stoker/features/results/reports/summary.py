"""Summarize the reports of a job: last, minimum and maximum of each metric, but not the curve.

A `Collector` reads the files of a job as they grow; its state can be saved (`to_json`) and
restored.

If a later attempt reports a step again, it replaces the values from that step on, separately for
each metric: the job resumed from a checkpoint, so the later values are obsolete. Reports without a
step are numbered 0, 1, 2 in each attempt, so that a job that starts over replaces everything.

A metric may be both in $STOKER_METRICS and in the log. The last value is then that of the later
attempt, then of the higher step, then of the file that was written last; minimum and maximum are
taken over both.

The scalars of TensorBoard event files are a third source, for names that are in neither of the two.
Of several event files with the same name, a later one replaces values from its first step on.
"""

from __future__ import annotations

import json
import math
from operator import ne
from typing import Any

from stoker.features.results.reports.event_files import EventReader
from stoker.features.results.reports.report_block import Column, ReportBlock
from stoker.features.results.reports.report_files import (
    InvalidLine,
    LogReader,
    MetricsReader,
    whole,
)
from stoker.record import Record
from stoker.text.progress.report_line import Report, is_number

MAX_NAMES = 2000  # per file: names such as `loss_1`, `loss_2`, ... must not exhaust memory
_MAX_CUTS = 1000
_STATE_VERSION = 1


class Stat(Record):
    """The summary of one metric. `min` and `max` are None if it never was a number."""

    last: object
    step: float  # of the last value
    n: int
    nans: int  # how many of n are NaN; these are ignored in min and max
    min: float | None
    min_step: float | None
    max: float | None
    max_step: float | None


class Timeline:
    """Decides which values of one metric are valid when attempts go back to earlier steps."""

    __slots__ = ("attempt", "cuts", "implied")

    def __init__(self) -> None:
        self.attempt = 0  # the latest attempt that reported this metric
        self.implied = 0  # the step for the next report without one
        self.cuts: list[tuple[int, float]] = []  # (attempt, first step that it replaced)

    def place(self, step: float | None, attempt: int | None) -> tuple[float, bool] | None:
        """Return (step, whether it is the first of an attempt), or None if a later attempt
        replaced it."""
        is_first = attempt is not None and attempt > self.attempt
        if attempt is None:
            attempt = self.attempt
        elif is_first:
            self.attempt, self.implied = attempt, 0
        if step is None:
            step = self.implied
            self.implied += 1
        if any(later > attempt and step >= cut for later, cut in self.cuts):
            return None
        if is_first:
            self._cut(attempt, step)
        return step, is_first

    def is_newest(self, attempt: int | None) -> bool:
        """Whether no value of this attempt was replaced by a later one."""
        return not self.cuts if attempt is None else attempt >= self.attempt

    def _cut(self, attempt: int, step: float) -> None:
        if any(later >= attempt and cut <= step for later, cut in self.cuts):
            return
        rest = [(a, s) for a, s in self.cuts if a > attempt or s < step]
        self.cuts = sorted([*rest, (attempt, step)])[-_MAX_CUTS:]


class _Tally:
    """The summary of one metric in one file."""

    __slots__ = ("highest", "is_stale", "lowest", "stat", "timeline")

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.is_stale = False  # `stat` includes values that were replaced
        self._reset()

    def _reset(self) -> None:
        self.stat: Stat | None = None
        self.lowest = math.inf
        self.highest = -math.inf

    def add(self, value: object, step: float | None, attempt: int | None) -> None:
        placed = self.timeline.place(step, attempt)
        if placed is None:
            return
        step, is_first = placed
        if is_first and step <= self.highest:
            if step <= self.lowest:
                self._reset()
                self.is_stale = False
            else:
                self.is_stale = True  # the file must be read again to remove replaced values
        self.lowest = min(self.lowest, step)
        self.highest = max(self.highest, step)
        _, _, count, nans, least, least_step, most, most_step = self.stat or _NOTHING
        if is_number(value):
            if value != value:
                nans += 1
            else:
                if least is None or value < least:
                    least, least_step = value, step
                if most is None or value > most:
                    most, most_step = value, step
        self.stat = Stat(value, step, count + 1, nans, least, least_step, most, most_step)

    def add_column(self, column: Column, attempt: int | None) -> None:
        """Add many values, all of an attempt that no later one has replaced."""
        values, steps, _ = column
        self.add(values[0], None if steps is None else steps[0], attempt)
        values = values[1:]
        if not values:
            return
        if steps is None:
            begin = self.timeline.implied
            self.timeline.implied += len(values)
            steps = list(range(begin, begin + len(values)))
        else:
            steps = steps[1:]
        self.lowest = min(self.lowest, *steps)
        self.highest = max(self.highest, *steps)
        _, _, count, nans, least, least_step, most, most_step = self.stat or _NOTHING
        last, last_step, count = values[-1], steps[-1], count + len(values)
        if any(map(ne, values, values)):  # only NaN differs from itself
            real = [place for place, value in enumerate(values) if value == value]
            nans += len(values) - len(real)
            values, steps = [values[place] for place in real], [steps[place] for place in real]
        if values:
            low, high = min(values), max(values)
            if least is None or low < least:
                least, least_step = low, steps[values.index(low)]
            if most is None or high > most:
                most, most_step = high, steps[values.index(high)]
        self.stat = Stat(last, last_step, count, nans, least, least_step, most, most_step)

    def state(self) -> list[object]:
        line = self.timeline
        stat = None if self.stat is None else [_pack(value) for value in self.stat]
        bounds = [self.lowest, self.highest] if self.stat else [0, 0]
        return [line.attempt, line.implied, line.cuts, self.is_stale, stat, *bounds]

    @classmethod
    def restored(cls, state: list[object]) -> _Tally:
        tally = cls()
        attempt, implied, cuts, is_stale, stat, lowest, highest = state
        tally.timeline.attempt = whole(attempt)
        tally.timeline.implied = whole(implied)
        tally.timeline.cuts = [(whole(a), _number(s)) for a, s in _list(cuts)]
        tally.is_stale = bool(is_stale)
        if stat is not None:
            tally.stat = Stat._make([_unpack(value) for value in _list(stat)])
            tally.lowest, tally.highest = _number(lowest), _number(highest)
        return tally


def _merged(written: _Tally | None, printed: _Tally | None, is_printed_later: bool) -> Stat | None:
    """The summary of one metric over both files."""
    if written is None or written.stat is None:
        return None if printed is None else printed.stat
    if printed is None or printed.stat is None:
        return written.stat
    attempts = written.timeline.attempt, printed.timeline.attempt
    one, other = written.stat, printed.stat
    if all(attempts) and attempts[0] != attempts[1]:  # 0 means unknown
        is_printed = attempts[1] > attempts[0]
    else:
        is_printed = (other.step, is_printed_later) > (one.step, not is_printed_later)
    last, before = (other, one) if is_printed else (one, other)
    if before.min is not None and (last.min is None or before.min < last.min):
        last = last._replace(min=before.min, min_step=before.min_step)
    if before.max is not None and (last.max is None or before.max > last.max):
        last = last._replace(max=before.max, max_step=before.max_step)
    return last


_NOTHING = Stat(None, 0, 0, 0, None, None, None, None)


class Collector:
    """The summary of all reports of one job.

    Each attempt has its own log file: for the next attempt, `feed_log` starts at the beginning of
    the next file. After an attempt that resumed from a checkpoint, `is_stale` is true if `min`,
    `max` and `n` include replaced values. In this case, feed all files from their beginning to
    the collector that `again()` returns.
    """

    def __init__(self) -> None:
        self.metrics = MetricsReader()
        self.log = LogReader()
        self.log_attempt = 0  # the attempt whose log is read
        self.reports = 0
        self.last_at: float | None = None
        self.is_printed_later = True  # the log was written after $STOKER_METRICS
        self.events: dict[str, EventReader] = {}  # by path in the output folder, oldest first
        self._tallies: dict[str, dict[str, _Tally]] = {"metrics": {}, "log": {}, "events": {}}
        self._past_invalid_lines = 0  # in logs of earlier attempts
        self._past_first_invalid: InvalidLine | None = None

    def feed_metrics(self, data: bytes) -> None:
        """Add a chunk of $STOKER_METRICS."""
        block = self.metrics.block(data)
        if block is not None and self._take_block(block):
            self.metrics.take(data, block)
        else:
            self._take("metrics", self.metrics.feed(data), None)

    def feed_log(self, data: bytes, attempt: int = 1) -> None:
        if attempt < self.log_attempt:
            raise ValueError(f"log of attempt {attempt} after that of {self.log_attempt}")
        if attempt > self.log_attempt:
            self._take("log", self.log.finish(), self.log_attempt)
            self._past_invalid_lines += self.log.invalid_lines
            self._past_first_invalid = self._past_first_invalid or self.log.first_invalid
            self.log, self.log_attempt = LogReader(), attempt
        self._take("log", self.log.feed(data), attempt)

    def add_events(self, reports: list[Report]) -> None:
        """Add reports that the readers in `events` returned."""
        self._take("events", reports, None)

    def finish(self) -> None:
        """Add last lines without a line end; call it after the job has ended."""
        self._take("metrics", self.metrics.finish(), None)
        self._take("log", self.log.finish(), self.log_attempt)

    @property
    def summary(self) -> dict[str, Stat]:
        """Summaries by metric name, in the order of their first reports."""
        written, printed = self._tallies["metrics"], self._tallies["log"]
        found = {}
        for name in dict.fromkeys([*written, *printed]):
            stat = _merged(written.get(name), printed.get(name), self.is_printed_later)
            if stat is not None:
                found[name] = stat
        for name, tally in self._tallies["events"].items():
            if tally.stat is not None:
                found.setdefault(name, tally.stat)
        return found

    @property
    def invalid_lines(self) -> int:
        events = sum(reader.invalid_lines for reader in self.events.values())
        return (
            self.metrics.invalid_lines + self._past_invalid_lines + self.log.invalid_lines + events
        )

    @property
    def first_invalid(self) -> InvalidLine | None:
        """The first invalid line."""
        events = (reader.first_invalid for reader in self.events.values())
        return (
            self.metrics.first_invalid
            or self._past_first_invalid
            or self.log.first_invalid
            or next(filter(None, events), None)
        )

    @property
    def is_stale(self) -> bool:
        return any(tally.is_stale for source in self._tallies.values() for tally in source.values())

    def again(self) -> Collector:
        """Return an empty collector that already knows which values were replaced."""
        fresh = Collector()
        fresh.is_printed_later = self.is_printed_later
        for source, tallies in self._tallies.items():
            for name, tally in tallies.items():
                fresh._tallies[source][name] = _Tally()
                fresh._tallies[source][name].timeline.cuts = tally.timeline.cuts
        return fresh

    def _take_block(self, block: ReportBlock) -> bool:
        """Add many reports at once; returns False, and adds nothing, if that is not possible."""
        tallies = self._tallies["metrics"]
        columns = {name: block.column(name) for name in block.names}
        number = block.attempt
        known = [tallies[name] for name in columns if name in tallies]
        if (
            None in columns.values()
            or len(tallies) + len(columns) > MAX_NAMES
            or not all(tally.timeline.is_newest(number) for tally in known)
        ):
            return False
        self.reports += len(block)
        if block.times is not None:
            self.last_at = max(*block.times, self.last_at or block.times[0])
        for name, column in columns.items():
            if column is not None and column.values:
                tallies.setdefault(name, _Tally()).add_column(column, number)
        return True

    def _take(self, source: str, reports: list[Report], attempt: int | None) -> None:
        tallies = self._tallies[source]
        for report in reports:
            self.reports += 1
            if report.at is not None:
                self.last_at = max(report.at, self.last_at or report.at)
            number = attempt if report.attempt is None else report.attempt
            for name, value in report.values.items():
                tally = tallies.get(name)
                if tally is None:
                    if len(tallies) >= MAX_NAMES:
                        continue
                    tally = tallies[name] = _Tally()
                tally.add(value, report.step, number)

    def to_json(self) -> str:
        """Return the state as strict JSON, which SQLite's JSON functions can read."""
        state = {
            "version": _STATE_VERSION,
            "metrics": self.metrics.state(),
            "log": self.log.state(),
            "events": {path: reader.state() for path, reader in self.events.items()},
            "log_attempt": self.log_attempt,
            "reports": self.reports,
            "last_at": self.last_at,
            "printed_later": self.is_printed_later,
            "past": [self._past_invalid_lines, self._past_first_invalid],
            "names": {
                source: {name: tally.state() for name, tally in tallies.items()}
                for source, tallies in self._tallies.items()
            },
        }
        return json.dumps(state, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Collector:
        """Restore a collector; raises ValueError for the state of another version. The caller
        then reads both files from their beginning."""
        collector = cls()
        try:
            state = json.loads(text)
            if state["version"] != _STATE_VERSION:
                raise ValueError(f"version {state['version']}")
            collector.metrics.restore(state["metrics"])
            collector.log.restore(state["log"])
            for path, saved in state.get("events", {}).items():
                collector.events[path] = EventReader()
                collector.events[path].restore(saved)
            collector.log_attempt = whole(state["log_attempt"])
            collector.reports = whole(state["reports"])
            collector.last_at = state["last_at"]
            # Missing in states that older releases saved.
            collector.is_printed_later = bool(state.get("printed_later", False))
            collector._past_invalid_lines = whole(state["past"][0])
            if state["past"][1] is not None:
                collector._past_first_invalid = InvalidLine._make(state["past"][1])
            for source, tallies in collector._tallies.items():
                for name, tally in state["names"].get(source, {}).items():
                    tallies[name] = _Tally.restored(tally)
        except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise ValueError(f"not the state of a collector: {error!r}") from None
        return collector


# -- the state as strict JSON ---------------------------------------------------------------------


def _pack(value: object) -> object:
    """Encode NaN and infinity, which JSON lacks, as a list; metric values are never lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return [str(value)]
    return value


def _unpack(value: object) -> object:
    return float(value[0]) if isinstance(value, list) else value


def _number(value: object) -> float:
    if not is_number(value):
        raise TypeError(f"{value!r} is not a number")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value
