"""Many reports at once: parse and add a chunk of $STOKER_METRICS in a fifth of the time.

A job that reports with `stoker.log` writes flat JSON objects of one attempt whose values are
numbers. Such a chunk becomes a `ReportBlock`; every other chunk is parsed line by line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from operator import itemgetter, lt
from typing import Any

from stoker.record import Record
from stoker.text.progress.report_line import MAX_INT, MAX_LINE_LENGTH, RESERVED, can_name

_NUMBERS = {int, float}
_NOTHING = {type(None)}


class Column(Record):
    """The values of one metric. `steps` and `times` are None if no report has one."""

    values: list[float]
    steps: list[float] | None
    times: list[float] | None


class ReportBlock:
    """Valid reports of one attempt, all with or all without step and time."""

    def __init__(
        self,
        records: list[dict[str, Any]],
        attempt: int | None,
        steps: list[float] | None,
        times: list[float] | None,
    ) -> None:
        self._records = records
        self.attempt = attempt
        self._steps = steps
        self.times = times
        keys = records[0].keys()
        self._is_uniform = all(record.keys() == keys for record in records)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def names(self) -> list[str]:
        """The metrics, in the order of their first reports."""
        keys = self._records[0] if self._is_uniform else chain.from_iterable(self._records)
        found = dict.fromkeys(keys)
        return [name for name in found if name not in RESERVED]

    def column(self, name: str) -> Column | None:
        """The values of a metric, none if it does not occur; None if some are not numbers."""
        values: list[Any] = []
        if self._is_uniform:
            with suppress(KeyError):
                values = list(map(itemgetter(name), self._records))
        steps, times = self._steps, self.times
        if len(values) != len(self._records) or None in values:
            places = [
                place for place, record in enumerate(self._records) if record.get(name) is not None
            ]
            values = [self._records[place][name] for place in places]
            steps = None if steps is None else [steps[place] for place in places]
            times = None if times is None else [times[place] for place in places]
        return Column(values, steps, times) if _are_numbers(values) else None


def parse_block(data: bytes) -> ReportBlock | None:
    """Parse complete lines; None if they must be parsed one by one."""
    lines = data.split(b"\n")
    if lines.pop() or not lines:
        return None
    # As many braces as lines and no bracket: each line is one object, without lists or objects.
    is_flat = data.count(b"{") == data.count(b"}") == len(lines) and b"[" not in data
    if not is_flat or max(map(len, lines)) > MAX_LINE_LENGTH:
        return None
    try:
        records = json.loads(f"[{b','.join(lines).decode('utf-8')}]")
    except (ValueError, RecursionError):
        return None
    if len(records) != len(lines):
        return None
    return make_block(records)


def make_block(records: list[dict[str, Any]]) -> ReportBlock | None:
    """The block of parsed lines; None if they must be checked one by one."""
    attempts = [record.get("attempt") for record in records]
    attempt = attempts[0]
    if attempts.count(attempt) != len(attempts):
        return None
    if attempt is not None and (type(attempt) is not int or attempt < 0):
        return None
    steps, times = _reserved(records, "step"), _reserved(records, "at")
    if steps is None or times is None:
        return None
    block = ReportBlock(records, attempt, steps or None, times or None)
    return block if all(map(can_name, block.names)) else None


def _reserved(records: list[dict[str, Any]], name: str) -> list[float] | None:
    """`step` or `at` of all reports, empty if none has one; None if some have, or are invalid."""
    values: list[Any] = [record.get(name) for record in records]
    kinds = set(map(type, values))
    if kinds == _NOTHING:
        return []
    if not kinds <= _NUMBERS or not all(map(math.isfinite, values)):
        return None
    return values if _are_numbers(values) else None


def _are_numbers(values: list[Any]) -> bool:
    """Whether all are numbers in the range that reports can have."""
    kinds = set(map(type, values))
    if not kinds <= _NUMBERS:
        return False
    if int not in kinds:
        return True
    numbers = [value for value in values if type(value) is int] if float in kinds else values
    return bool(min(numbers) >= -MAX_INT and max(numbers) <= MAX_INT)


def increases(values: Sequence[float]) -> bool:
    """Whether each value is larger than the one before it."""
    return all(map(lt, values, values[1:]))
