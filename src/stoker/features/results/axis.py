"""Map values to positions between 0 and 1 on an axis, and choose round values for ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable

from stoker.features.results.figure import Axis
from stoker.record import Record

_MAX_VALUE = 1e300  # differences of larger numbers overflow
_MARGIN = 0.03


class Tick(Record):
    place: float
    label: str


class Scale:
    """The scale of one axis, chosen to contain `values`."""

    def __init__(self, axis: Axis, values: Iterable[float]) -> None:
        self._axis = axis
        places = [self._transform(value) for value in values if self.has(value)]
        low, high = (min(places), max(places)) if places else (0.0, 1.0)
        if axis.scale == "category":
            low, high = -0.5, max(0.5, len(axis.categories) - 0.5)
        elif high - low <= max(abs(low), abs(high)) * 1e-12 or high - low < _MAX_VALUE**-1:
            room = abs(low) * 0.1 if abs(low) > _MAX_VALUE**-0.5 else 1.0
            low, high = low - room, high + room
        else:
            room = (high - low) * _MARGIN
            low, high = low - room, high + room
        self._low, self._high = low, high

    def has(self, value: float) -> bool:
        """Whether the value can be drawn on this axis."""
        return math.isfinite(value) and (self._axis.scale != "log" or value > 0)

    def place(self, value: float) -> float:
        return (self._transform(value) - self._low) / (self._high - self._low)

    def ticks(self, most: int) -> list[Tick]:
        """About `most` ticks, but at least two if possible."""
        most = max(2, most)
        if self._axis.scale == "category":
            return [self._tick(i, name) for i, name in enumerate(self._axis.categories)]
        if self._axis.scale == "log":
            return self._log_ticks(most)
        return [self._tick(value, label) for value, label in _round(self._low, self._high, most)]

    def _transform(self, value: float) -> float:
        if self._axis.scale == "log":
            return math.log10(value)
        return max(-_MAX_VALUE, min(_MAX_VALUE, value))

    def _tick(self, transformed: float, label: str) -> Tick:
        return Tick((transformed - self._low) / (self._high - self._low), label)

    def _log_ticks(self, most: int) -> list[Tick]:
        first, last = math.ceil(self._low), math.floor(self._high)
        decades = last - first + 1
        if decades >= 2:
            stride = math.ceil(decades / most)
            return [self._tick(power, _power(1, power)) for power in range(first, last + 1, stride)]
        finer = [
            (power + math.log10(factor), _power(factor, power))
            for power in range(first - 1, last + 2)
            for factor in (1, 2, 5)
            if self._low <= power + math.log10(factor) <= self._high
        ]
        if len(finer) >= 2:
            return [self._tick(place, label) for place, label in finer]
        try:
            low, high = 10**self._low, 10**self._high
        except OverflowError:
            return [self._tick(place, label) for place, label in finer]
        return [
            self._tick(math.log10(value), label)
            for value, label in _round(low, high, most)
            if value > 0
        ]


def _round(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Values and labels at multiples of 1, 2 or 5 times a power of ten."""
    spacing = (high - low) / most
    power = math.floor(math.log10(spacing)) if spacing > 0 else -300
    unit = 10.0**power
    for factor in (10, 5, 2, 1, 0.5):
        step = factor * unit
        first = math.ceil(low / step)
        values = [(first + i) * step for i in range(3 * most + 2)]
        values = [value for value in values if low <= value <= high]
        if len(values) >= 2 and factor * unit / 2 < spacing:  # a single tick shows no scale
            break
    return [(value, _label(value, step)) for value in values]


def _label(value: float, step: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 1e6 or step < 1e-5:
        digits = min(12, max(0, math.floor(math.log10(abs(value))) - math.floor(math.log10(step))))
        return _shorter(f"{value:.{digits}e}")
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:.{decimals}f}"


def _power(factor: int, power: int) -> str:
    if -3 <= power <= 4:
        return f"{factor * 10.0**power:.6g}"
    return f"{factor}e{power}"


def _shorter(text: str) -> str:
    """Shorten 1.50e+06 to 1.5e6."""
    digits, _, power = text.partition("e")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"{digits}e{int(power)}"
