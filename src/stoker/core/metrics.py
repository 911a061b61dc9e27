"""What jobs report about themselves: lines in, the last and the best value of each name out.

A report is a line of JSON in the file $STOKER_METRICS, or a line `stoker: val_loss=0.2 step=10` in
the log. Both files only grow, so they are read piece by piece, and a `Collector` can be put away
(`to_json`) and go on later. It keeps a few numbers per name, never the curve.

An attempt that comes after another and reports a step again replaces what was reported from that
step on, name by name: the job went back to a checkpoint, and what came after it is no longer true.
Reports without a step are counted 0, 1, 2 in each attempt, so that a job that begins again replaces
everything. A name that stands in both files counts as in $STOKER_METRICS.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

from stoker.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeGuard

LONGEST_LINE = 1_000_000
LONGEST_TEXT = 1000  # of a value; what is longer is cut
MOST_NAMES = 2000  # of one file: `loss_1`, `loss_2`, ... must not fill the memory
RESERVED = ("step", "at", "attempt")

_MOST_CUTS = 1000
_LARGEST_INT = 2**63 - 1
_STATE_VERSION = 1
_PREFIX = b"stoker:"
_NAME = re.compile(r"[\w./@-]{1,200}")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_WORD = re.compile(r"""\s*([^\s="']+)=("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"']\S*)(?=\s|$)""")
_ESCAPED = re.compile(r"\\(.)")
_LINE_END = re.compile(rb"[\r\n]")


class Rubbish(ValueError):
    """A line that was meant as a report and is none; says why."""


class Report(Record):
    step: float | None
    values: dict[str, object]  # numbers, true and false, text
    at: float | None = None
    attempt: int | None = None


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


class Complaint(Record):
    source: str  # metrics or log
    line: int
    reason: str


# -- one line -------------------------------------------------------------------------------------


def read_json_line(line: bytes) -> Report:
    """
    >>> read_json_line(b'{"val_loss": 0.2, "step": 10}')
    Report(step=10, values={'val_loss': 0.2}, at=None, attempt=None)
    """
    if len(line) > LONGEST_LINE:
        raise Rubbish(f"a line of more than {LONGEST_LINE} bytes")
    try:
        content = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise Rubbish("not UTF-8") from None
    except (ValueError, RecursionError):
        raise Rubbish("not JSON") from None
    if not isinstance(content, dict):
        raise Rubbish("not a JSON object")
    return _report(content)


def read_printed_line(line: bytes) -> Report | None:
    """The report that a line of a log is, or None; what only begins like one raises Rubbish.

    >>> read_printed_line(b"stoker: acc=0.5 best=true note='two words'")
    Report(step=None, values={'acc': 0.5, 'best': True, 'note': 'two words'}, at=None, attempt=None)
    """
    for part in reversed(line.rstrip(b"\r\n").split(b"\r")):
        if part.startswith(_PREFIX):
            break
    else:
        return None
    if len(part) > LONGEST_LINE:
        raise Rubbish(f"a line of more than {LONGEST_LINE} bytes")
    if b"=" not in part:
        return None  # prose: some program speaks of us
    try:
        text = part[len(_PREFIX) :].decode("utf-8").rstrip()
    except UnicodeDecodeError:
        raise Rubbish("not UTF-8") from None
    content: dict[str, object] = {}
    position = 0
    while position < len(text):
        found = _WORD.match(text, position)
        if found is None:
            raise Rubbish(f"`{text[position : position + 40].strip()}` is not name=value")
        content[found[1]] = _printed_value(found[2])
        position = found.end()
    return _report(content)


def _printed_value(text: str) -> object:
    if text[0] in "\"'":
        return _ESCAPED.sub(r"\1", text[1:-1])
    text = text.rstrip(",") or text  # `a=1, b=2` was meant as it looks
    if _NUMBER.fullmatch(text):
        try:
            return float(text) if set(text) & set(".eE") else int(text)
        except ValueError:  # thousands of digits
            raise Rubbish("a number that is too long") from None
    if _NOT_FINITE.fullmatch(text):
        return float(text)
    if text in ("true", "True", "false", "False"):
        return text in ("true", "True")
    try:
        float(text)
    except ValueError:
        return text
    # Python would read 1_000 as a number; as text it would silently be in no plot.
    raise Rubbish(f"`{text[:40]}` is no way to write a number")


def _report(content: Mapping[str, object]) -> Report:
    values = {}
    for name, value in content.items():
        if name in RESERVED or value is None:
            continue
        if not _NAME.fullmatch(name):
            raise Rubbish(f"`{name[:40]}` is not a name (letters, digits, _ . / - @, at most 200)")
        values[name] = _value(name, value)
    step, at, attempt = (_reserved(name, content.get(name)) for name in RESERVED)
    if attempt is not None and not (isinstance(attempt, int) and attempt >= 0):
        raise Rubbish("`attempt` is not a whole number")
    return Report(step, values, at, attempt)


def _value(name: str, value: object) -> object:
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else value[: LONGEST_TEXT - 1] + "…"
    if isinstance(value, int) and abs(value) > _LARGEST_INT:
        try:
            return float(value)
        except OverflowError:
            raise Rubbish(f"`{name}` is too large") from None
    if isinstance(value, (int, float)):
        return value
    raise Rubbish(f"`{name}` is neither a number nor text")


def _reserved(name: str, value: object) -> float | None:
    if value is None:
        return None
    value = _value(name, value)
    if not is_number(value) or not math.isfinite(value):
        raise Rubbish(f"`{name}` is not a number")
    return value


def is_number(value: object) -> TypeGuard[float]:
    """True and false are ints to Python, but nobody's metric."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# -- a growing file -------------------------------------------------------------------------------


class Reader:
    """Bytes of one growing file in, reports out; the pieces may be cut anywhere.

    `offset` is where a reader that was put away goes on; `position` where this one does.
    """

    source = ""

    def __init__(self) -> None:
        self.offset = 0
        self.rubbish = 0
        self.complaint: Complaint | None = None  # the first
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
            self.complaint = Complaint(self.source, number, reason)

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
        self.offset = _int(state["offset"])
        self.rubbish = _int(state["rubbish"])
        complaint = state["complaint"]
        if isinstance(complaint, list):
            self.complaint = Complaint(str(complaint[0]), _int(complaint[1]), str(complaint[2]))
        self._lines = _int(state["lines"])
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
        except Rubbish as error:
            self._complain(number, str(error))
        # A job that was killed while it wrote leaves half a line, and the next attempt writes on.
        again = line.rfind(b"{", 1)
        if again > 0 and len(line) <= LONGEST_LINE:
            try:
                return [read_json_line(line[again:])]
            except Rubbish:
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
        at = buffer.find(_PREFIX, 0, end)
        while at >= 0:
            if buffer[at - 1] in b"\r\n" if at else not self._skips:
                found = _LINE_END.search(buffer, at)
                assert found is not None
                complaints = self.rubbish
                reports += self._read(buffer[at : found.start()], 0)
                if self.rubbish > complaints == 0 and self.complaint is not None:
                    number = self._lines + buffer.count(b"\n", 0, at) + 1
                    self.complaint = self.complaint._replace(line=number)
            at = buffer.find(_PREFIX, at + 1, end)
        if end:
            self._skips = False
            self._lines += buffer.count(b"\n", 0, end)
        tail = buffer[end : end + len(_PREFIX)]
        if not _PREFIX.startswith(tail):
            self._skips = True
        self._keep(buffer, end)
        return reports

    def _read(self, line: bytes, number: int) -> list[Report]:
        try:
            report = read_printed_line(line)
        except Rubbish as error:
            self._complain(number, str(error))
            return []
        return [] if report is None else [report]


# -- what is kept ---------------------------------------------------------------------------------


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
        tally.timeline.attempt = _int(attempt)
        tally.timeline.implied = _int(implied)
        tally.timeline.cuts = [(_int(a), _number(s)) for a, s in _list(cuts)]
        tally.is_stale = bool(is_stale)
        if stat is not None:
            tally.stat = Stat._make([_unpack(value) for value in _list(stat)])
            tally.lowest, tally.highest = _number(lowest), _number(highest)
        return tally


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
        self._tallies: dict[str, dict[str, _Tally]] = {"metrics": {}, "log": {}}
        self._past_rubbish = 0  # in logs of earlier attempts
        self._past_complaint: Complaint | None = None

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
        merged = {**self._tallies["metrics"]}
        for name, tally in self._tallies["log"].items():
            if name not in merged or merged[name].stat is None:
                merged[name] = tally
        return {name: tally.stat for name, tally in merged.items() if tally.stat is not None}

    @property
    def rubbish(self) -> int:
        return self.metrics.rubbish + self._past_rubbish + self.log.rubbish

    @property
    def complaint(self) -> Complaint | None:
        """The first line that was rubbish."""
        return self.metrics.complaint or self._past_complaint or self.log.complaint

    @property
    def is_stale(self) -> bool:
        return any(tally.is_stale for source in self._tallies.values() for tally in source.values())

    def again(self) -> Collector:
        """An empty one that knows beforehand which values were replaced."""
        fresh = Collector()
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
            collector.log_attempt = _int(state["log_attempt"])
            collector.reports = _int(state["reports"])
            collector.last_at = state["last_at"]
            collector._past_rubbish = _int(state["past"][0])
            if state["past"][1] is not None:
                collector._past_complaint = Complaint._make(state["past"][1])
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


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _number(value: object) -> float:
    if not is_number(value):
        raise TypeError(f"{value!r} is not a number")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value
