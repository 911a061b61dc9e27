"""The domain of a parameter: the set of its possible values.

A finite domain has a size and numbered values. Every domain maps [0, 1) to values, which is all
that random search and Latin hypercube sampling need.
"""

from __future__ import annotations

import math
from decimal import Decimal
from itertools import accumulate
from statistics import NormalDist

from stoker.errors import UsageError
from stoker.features.sweeps.spec.values import Value, from_number, key
from stoker.record import Record

_STANDARD = NormalDist()
_EDGE = 1e-9  # quantiles of a normal distribution are clamped to [_EDGE, 1 - _EDGE]


class Choices(Record):
    """An explicit list of values, with optional relative weights."""

    values: tuple[Value, ...]
    weights: tuple[float, ...] = ()
    merged: tuple[tuple[str, str], ...] = ()  # (kept text, dropped text) of equal values

    @property
    def size(self) -> int:
        return len(self.values)

    def value(self, index: int) -> Value:
        return self.values[index]

    def at(self, u: float) -> Value:
        if not self.weights:
            return self.values[min(int(u * len(self.values)), len(self.values) - 1)]
        target = u * sum(self.weights)
        for value, cumulative in zip(self.values, accumulate(self.weights), strict=True):
            if target < cumulative:
                return value
        return self.values[-1]

    def locate(self, data: object) -> int | None:
        wanted = key(data)
        return next((i for i, v in enumerate(self.values) if key(v.data) == wanted), None)


class Steps(Record):
    """`first`, `first + step`, ... in decimal arithmetic: ten steps of 0.1 are exactly 1."""

    first: str
    step: str
    length: int

    @property
    def size(self) -> int:
        return self.length

    def value(self, index: int) -> Value:
        number = Decimal(self.first) + index * Decimal(self.step)
        if self._is_whole():
            return Value(int(number), str(int(number)))
        return from_number(float(number), 15)

    def at(self, u: float) -> Value:
        return self.value(min(int(u * self.length), self.length - 1))

    def locate(self, data: object) -> int | None:
        if isinstance(data, bool) or not isinstance(data, (int, float)):
            return None
        index = round((Decimal(repr(data)) - Decimal(self.first)) / Decimal(self.step))
        fits = 0 <= index < self.length and key(self.value(index).data) == key(data)
        return index if fits else None

    def _is_whole(self) -> bool:
        return not set(self.first + self.step) & set(".eE")


class Whole(Record):
    """Integers from `low` to `high`, both included."""

    low: int
    high: int
    log: bool = False

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    def value(self, index: int) -> Value:
        return Value(self.low + index, str(self.low + index))

    def at(self, u: float) -> Value:
        if self.log:
            low, high = math.log(self.low), math.log(self.high + 1)
            number = min(max(int(math.exp(low + u * (high - low))), self.low), self.high)
            return Value(number, str(number))
        return self.value(min(int(u * self.size), self.size - 1))

    def locate(self, data: object) -> int | None:
        if isinstance(data, bool) or not isinstance(data, (int, float)) or data != int(data):
            return None
        return int(data) - self.low if self.low <= data <= self.high else None


class Continuous(Record):
    """Real numbers of one distribution, given by `shape`.

    `uniform` and `log` lie between a and b; `normal` and `lognormal` have mean a and standard
    deviation b (of the logarithm). With a `step`, values are rounded to its multiples.
    """

    shape: str
    a: float
    b: float
    step: float | None = None

    @property
    def size(self) -> int | None:
        if self.step is None or self.shape not in ("uniform", "log"):
            return None
        return self._multiple(self.b) - self._multiple(self.a) + 1

    def value(self, index: int) -> Value:
        return self._rounded(self._multiple(self.a) + index)

    def at(self, u: float) -> Value:
        return self.near(self._real(u))

    def near(self, number: float) -> Value:
        """The value of this domain for a real number, rounded to the step or to its digits."""
        if self.step is not None:
            return self._rounded(self._multiple(number))
        if self.shape in ("uniform", "log"):
            return from_number(number, self._digits(), self.a, self.b)
        return from_number(number)

    def locate(self, data: object) -> float | None:
        """The place in [0, 1) that maps to `data`; None if no place does."""
        if isinstance(data, bool) or not isinstance(data, (int, float)):
            return None
        is_bounded = self.shape in ("uniform", "log")
        low, high = (self.a, self.b) if is_bounded else (-math.inf, math.inf)
        if self.shape == "lognormal":
            low = math.exp(self.a + self.b * _STANDARD.inv_cdf(_EDGE))
        slack = self.step or (high - low) * 1e-6 if is_bounded else math.inf
        if not low - slack <= data <= high + slack:
            return None
        real = min(max(data, low), high)  # rounding to a step may leave the interval
        if self.shape == "uniform":
            u = (real - low) / (high - low)
        elif self.shape == "log":
            u = math.log(real / low) / math.log(high / low)
        else:
            real = math.log(real) if self.shape == "lognormal" else real
            u = _STANDARD.cdf((real - self.a) / self.b) if self.b else 0.5
        return min(max(u, 0.0), 1.0 - 1e-12)

    def _real(self, u: float) -> float:
        if self.shape == "uniform":
            return self.a + u * (self.b - self.a)
        if self.shape == "log":
            return math.exp(math.log(self.a) + u * (math.log(self.b) - math.log(self.a)))
        real = self.a + self.b * _STANDARD.inv_cdf(min(max(u, _EDGE), 1 - _EDGE))
        return math.exp(real) if self.shape == "lognormal" else real

    def _multiple(self, number: float) -> int:
        assert self.step is not None
        return round(number / self.step)

    def _rounded(self, multiple: int) -> Value:
        step = Decimal(repr(self.step))
        number = multiple * step
        if step == int(step):
            return Value(int(number), str(int(number)))
        return from_number(float(number), 15)

    def _digits(self) -> int:
        """Significant digits: 6, or more for a narrow interval such as 1000000 to 1000001."""
        largest, span = max(abs(self.a), abs(self.b)), self.b - self.a
        if span <= 0 or self.shape == "log":
            return 6
        return 6 + max(0, math.ceil(math.log10(largest / span)))


Domain = Choices | Steps | Whole | Continuous


def steps(first: str, end: str, step: str) -> Steps:
    """Like Python's range, for decimals too; the end is excluded."""
    by = Decimal(step)
    if not by:
        raise UsageError("the step of a range must not be 0")
    count = math.ceil((Decimal(end) - Decimal(first)) / by)
    if count < 1:
        raise UsageError(
            f"range({first}, {end}, {step}) is empty", "the end of a range is not included"
        )
    return Steps(first, step, count)


def continuous(shape: str, a: float, b: float, step: float | None = None) -> Continuous:
    if not (math.isfinite(a) and math.isfinite(b)):
        raise UsageError("the bounds of an interval must be finite numbers")
    if shape in ("uniform", "log"):
        if not a < b:
            raise UsageError(
                f"the interval from {a!r} to {b!r} is empty", "write the smaller number first"
            )
        if shape == "log" and a <= 0:
            raise UsageError(f"both bounds of log({a!r}, {b!r}) must be greater than 0")
    elif b < 0:
        raise UsageError(f"the standard deviation is {b!r}, but must not be negative")
    if step is not None and not (step > 0 and math.isfinite(step)):
        raise UsageError(f"the step is {step!r}, but must be greater than 0")
    return Continuous(shape, float(a), float(b), None if step is None else float(step))


def whole(low: int, high: int, log: bool = False) -> Whole:
    if low > high:
        raise UsageError(f"int({low}, {high}) is empty", "write the smaller number first")
    if log and low < 1:
        raise UsageError(f"a logarithmic scale cannot start at {low}", "start at 1 or more")
    return Whole(low, high, log)


def choices(values: tuple[Value, ...], weights: tuple[float, ...] = ()) -> Choices:
    """Return a domain with each value once; the weights of equal values are added up."""
    if not values:
        raise UsageError("a parameter needs at least one value")
    if weights and (len(weights) != len(values) or min(weights) < 0 or not sum(weights) > 0):
        raise UsageError(
            "the probabilities do not match the values",
            "give one probability for each value, at least one of them greater than 0",
        )
    seen: dict[str, int] = {}
    kept: list[Value] = []
    merged: list[tuple[str, str]] = []
    totals: list[float] = []
    for index, value in enumerate(values):
        place = seen.setdefault(key(value.data), len(kept))
        if place == len(kept):
            kept.append(value)
            totals.append(0.0)
        elif kept[place].text != value.text:
            merged.append((kept[place].text, value.text))
        if weights:
            totals[place] += weights[index]
    return Choices(tuple(kept), tuple(totals) if weights else (), tuple(dict.fromkeys(merged)))


def to_json(domain: Domain) -> dict[str, object]:
    if isinstance(domain, Choices):
        values = [[value.data, value.text] for value in domain.values]
        merged = [list(pair) for pair in domain.merged]
        return {
            "kind": "choices",
            "values": values,
            "weights": list(domain.weights),
            "merged": merged,
        }
    return {"kind": type(domain).__name__.lower(), **domain._asdict()}


def from_json(stored: dict[str, object]) -> Domain:
    fields = dict(stored)
    kind = fields.pop("kind")
    if kind == "choices":
        values, weights, merged = fields["values"], fields["weights"], fields.get("merged", [])
        assert isinstance(values, list) and isinstance(weights, list) and isinstance(merged, list)
        made = tuple(Value(data, text) for data, text in values)
        return Choices(made, tuple(weights), tuple((one, other) for one, other in merged))
    kinds: dict[object, type[Steps] | type[Whole] | type[Continuous]]
    kinds = {"steps": Steps, "whole": Whole, "continuous": Continuous}
    return kinds[kind](**fields)  # type: ignore[arg-type]
