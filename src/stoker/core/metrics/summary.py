"""What the reports of a job come to: the last and the best value of each name, never the curve.

A `Collector` is fed both files of a job as they grow, can be put away (`to_json`) and go on later.

An attempt that comes after another and reports a step again replaces what was reported from that
step on, name by name: the job went back to a checkpoint, and what came after it is no longer true.
Reports without a step are counted 0, 1, 2 in each attempt, so that a job that begins again replaces
everything.

A name may stand in $STOKER_METRICS and be printed as well. Then the last value is that of the later
attempt, in it that of the higher step, and of two with the same step the one whose file was written
last; the least and the most are those of both.
"""

from __future__ import annotations

import json
import math

from stoker.core.metrics.report_files import InvalidLine, LogReader, MetricsReader, whole
from stoker.core.metrics.report_line import Report, is_number
from stoker.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_NAMES = 2000  # of one file: `loss_1`, `loss_2`, ... must not fill the memory
_MOST_CUTS = 1000
_STATE_VERSION = 1


class Stat(Record):
    """All that is kept of one name. `min` and `max` are None where there never was a number."""

    last: object
    step: float  # of the last value
    n: int
    nans: int  # of these; never the least or the most
    min: float | None
    min_step: float | None
    max: float | None
    max_step: float | None


class Timeline:
    """Which values of one name still count, when attempts go back to earlier steps."""

    __slots__ = ("attempt", "cuts", "implied")

    def __init__(self) -> None:
        self.attempt = 0  # the latest that reported this name
        self.implied = 0  # the step of its next report without one
        self.cuts: list[tuple[int, float]] = []  # this attempt replaced everything from this step

    def place(self, step: float | None, attempt: int | None) -> tuple[float, bool] | None:
        """(step, whether an attempt begins with it), or None when a later attempt replaced it."""
        begins = attempt is not None and attempt > self.attempt
        if attempt is None:
            attempt = self.attempt
        elif begins:
            self.attempt, self.implied = attempt, 0
        if step is None:
            step = self.implied
            self.implied += 1
        if any(later > attempt and step >= cut for later, cut in self.cuts):
            return None
        if begins:
            self._cut(attempt, step)
        return step, begins

    def _cut(self, attempt: int, step: float) -> None:
        if any(later >= attempt and cut <= step for later, cut in self.cuts):
            return
        rest = [(a, s) for a, s in self.cuts if a > attempt or s < step]
        self.cuts = sorted([*rest, (attempt, step)])[-_MOST_CUTS:]


class _Tally:
    """The numbers of one name in one file."""

    __slots__ = ("highest", "is_stale", "lowest", "stat", "timeline")

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.is_stale = False  # `stat` holds values that were replaced
        self._forget()

    def _forget(self) -> None:
        self.stat: Stat | None = None
        self.lowest = math.inf
        self.highest = -math.inf

    def add(self, value: object, step: float | None, attempt: int | None) -> None:
        placed = self.timeline.place(step, attempt)
        if placed is None:
            return
        step, begins = placed
        if begins and step <= self.highest:
            if step <= self.lowest:
                self._forget()
                self.is_stale = False
            else:
                self.is_stale = True  # how much of it is gone, only the file can tell
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
    """What both files say about one name."""
    if written is None or written.stat is None:
        return None if printed is None else printed.stat
    if printed is None or printed.stat is None:
        return written.stat
    attempts = written.timeline.attempt, printed.timeline.attempt
    one, other = written.stat, printed.stat
    if all(attempts) and attempts[0] != attempts[1]:  # 0: no line said whose it was
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
    """Everything that is kept of the reports of one job.

    The log of each attempt is a file of its own: with the next attempt, `feed_log` begins at the
    beginning of the next file. When an attempt went on from a checkpoint, `is_stale` says that
    `min`, `max` and `n` hold values that no longer count. Then `again()` is a collector that
    knows better; it wants to be fed both files from their beginning.
    """

    def __init__(self) -> None:
        self.metrics = MetricsReader()
        self.log = LogReader()
        self.log_attempt = 0  # whose log is being read
        self.reports = 0
        self.last_at: float | None = None
        self.is_printed_later = True  # the log was written to after $STOKER_METRICS
        self._tallies: dict[str, dict[str, _Tally]] = {"metrics": {}, "log": {}}
        self._past_rubbish = 0  # in logs of earlier attempts
        self._past_complaint: InvalidLine | None = None

    def feed_metrics(self, data: bytes, attempt: int | None = None) -> None:
        """`attempt` is for lines that do not say theirs."""
        self._take("metrics", self.metrics.feed(data), attempt)

    def feed_log(self, data: bytes, attempt: int = 1) -> None:
        if attempt < self.log_attempt:
            raise ValueError(f"log of attempt {attempt} after that of {self.log_attempt}")
        if attempt > self.log_attempt:
            self._take("log", self.log.finish(), self.log_attempt)
            self._past_rubbish += self.log.rubbish
            self._past_complaint = self._past_complaint or self.log.complaint
            self.log, self.log_attempt = LogReader(), attempt
        self._take("log", self.log.feed(data), attempt)

    def finish(self) -> None:
        """The job has ended: last lines without a line end count too."""
        self._take("metrics", self.metrics.finish(), None)
        self._take("log", self.log.finish(), self.log_attempt)

    @property
    def metrics_offset(self) -> int:
        return self.metrics.offset

    @property
    def log_offset(self) -> int:
        """In the log of `log_attempt`."""
        return self.log.offset

    @property
    def summary(self) -> dict[str, Stat]:
        """By name, in the order in which the names came up."""
        written, printed = self._tallies["metrics"], self._tallies["log"]
        found = {}
        for name in dict.fromkeys([*written, *printed]):
            stat = _merged(written.get(name), printed.get(name), self.is_printed_later)
            if stat is not None:
                found[name] = stat
        return found

    @property
    def rubbish(self) -> int:
        return self.metrics.rubbish + self._past_rubbish + self.log.rubbish

    @property
    def complaint(self) -> InvalidLine | None:
        """The first line that was rubbish."""
        return self.metrics.complaint or self._past_complaint or self.log.complaint

    @property
    def is_stale(self) -> bool:
        return any(tally.is_stale for source in self._tallies.values() for tally in source.values())

    def again(self) -> Collector:
        """An empty one that knows beforehand which values were replaced."""
        fresh = Collector()
        fresh.is_printed_later = self.is_printed_later
        for source, tallies in self._tallies.items():
            for name, tally in tallies.items():
                fresh._tallies[source][name] = _Tally()
                fresh._tallies[source][name].timeline.cuts = tally.timeline.cuts
        return fresh

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
                    if len(tallies) >= MOST_NAMES:
                        continue
                    tally = tallies[name] = _Tally()
                tally.add(value, report.step, number)

    def to_json(self) -> str:
        """Strict JSON: SQLite's own functions can read it."""
        state = {
            "version": _STATE_VERSION,
            "metrics": self.metrics.state(),
            "log": self.log.state(),
            "log_attempt": self.log_attempt,
            "reports": self.reports,
            "last_at": self.last_at,
            "printed_later": self.is_printed_later,
            "past": [self._past_rubbish, self._past_complaint],
            "names": {
                source: {name: tally.state() for name, tally in tallies.items()}
                for source, tallies in self._tallies.items()
            },
        }
        return json.dumps(state, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Collector:
        """ValueError when it was written by another version: then read from the beginning."""
        collector = cls()
        try:
            state = json.loads(text)
            if state["version"] != _STATE_VERSION:
                raise ValueError(f"version {state['version']}")
            collector.metrics.restore(state["metrics"])
            collector.log.restore(state["log"])
            collector.log_attempt = whole(state["log_attempt"])
            collector.reports = whole(state["reports"])
            collector.last_at = state["last_at"]
            # Not there in what was kept before the order of the two files counted.
            collector.is_printed_later = bool(state.get("printed_later", False))
            collector._past_rubbish = whole(state["past"][0])
            if state["past"][1] is not None:
                collector._past_complaint = InvalidLine._make(state["past"][1])
            for source, tallies in collector._tallies.items():
                for name, tally in state["names"][source].items():
                    tallies[name] = _Tally.restored(tally)
        except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise ValueError(f"not the state of a collector: {error!r}") from None
        return collector


# -- the state as strict JSON ---------------------------------------------------------------------


def _pack(value: object) -> object:
    """JSON has no NaN and no infinity; a list is never a value of ours."""
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
