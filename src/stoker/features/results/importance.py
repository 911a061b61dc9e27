"""Estimate from the finished trials how important each parameter is for a metric.

A score between 0 and 1 is the share of the variance of the ranks that one parameter explains alone
(a first-order Sobol index). Ranks are used so that one diverged trial with a loss of 1e9 does not
dominate. Values that repeat are compared as groups: eta squared, adjusted for the share expected by
chance. For other numbers, what is left unexplained is the mean squared difference of the ranks of
neighbors, divided by 2 (Rice's difference-based estimator of the variance). The square of
Spearman's rank correlation counts if it is higher: it needs fewer trials to see a trend.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from stoker.features.results import table
from stoker.features.results.table import Row
from stoker.record import Record
from stoker.text.progress.report_line import is_number

_FEWEST = 3
_FEWEST_FOR_NEIGHBORS = 12
_STRONG, _WEAK = 0.5, 0.1  # scores from which a sentence says "most", and "a part"
_FEW = 20  # with fewer trials, a sentence about the score says so
# How a score was computed, in the words of a sentence.
TREND = "squared rank correlation"
NEIGHBORS = "ranks compared between trials with neighboring values"
GROUPS = "ranks compared between its values"


class Influence(Record):
    name: str
    score: float
    direction: int  # 1: the metric rises with the parameter, -1: it falls, 0: no trend
    n: int  # number of trials used
    method: str  # TREND, NEIGHBORS or GROUPS


def importance(rows: Sequence[Row], metric: str) -> list[Influence]:
    """Return the influence of each parameter that varies, the most important first."""
    if not rows:
        return []
    known = table.Columns(rows)
    measured = table.numbers(rows, metric)
    found = []
    for name in table.varying(rows):
        read = known.reader(name)
        pairs = [
            (value, result)
            for value, result in zip(map(read, rows), measured, strict=True)
            if value is not None and result is not None
        ]
        influence = _influence(name, [p for p, _ in pairs], [m for _, m in pairs])
        if influence is not None:
            found.append(influence)
    return sorted(found, key=lambda one: -one.score)


def _influence(name: str, values: list[object], results: list[float]) -> Influence | None:
    n = len(values)
    numbers = [value for value in values if is_number(value) and math.isfinite(value)]
    kinds = len({table.identity(value) for value in values})
    if n < _FEWEST or kinds < 2:
        return None
    if len(numbers) == n:
        rho = spearman(numbers, results)
        is_repeated = kinds <= n / 2
        share = _groups(numbers, results) if is_repeated else _neighbors(numbers, results)
        score = max(rho * rho, share)
        is_trend = rho * rho >= score / 2
        direction = ((rho > 0) - (rho < 0)) if is_trend else 0
        method = TREND if score > share else GROUPS if is_repeated else NEIGHBORS
        return Influence(name, score, direction, n, method)
    if kinds == n:  # every trial is its own group
        return None
    return Influence(name, max(0.0, _groups(values, results)), 0, n, GROUPS)


def explain(found: Sequence[Influence], metric: str) -> str:
    """One sentence about the most important parameter, with the method and its limits; "" for none.

    >>> explain([Influence("lr", 0.71, -1, 40, TREND)], "loss")
    'lr explains most of the ranking by loss (0.71 of 1), from 40 trials; method: squared rank \
correlation, each parameter alone, so combined effects do not count'
    """
    if not found:
        return ""
    top = max(found, key=lambda one: one.score)
    if top.score < _WEAK:
        text = f"no parameter explains much of the ranking by {metric}; the most is {top.name}"
    else:
        share = "most" if top.score >= _STRONG else "a part"
        text = f"{top.name} explains {share} of the ranking by {metric}"
    few = ", which are few" if top.n < _FEW else ""
    return (
        f"{text} ({top.score:.2f} of 1), from {top.n} trials{few}; method: {top.method}, each"
        " parameter alone, so combined effects do not count"
    )


def _groups(values: Sequence[object], results: list[float]) -> float:
    """Eta squared over equal values, adjusted for the share expected by chance."""
    n, kinds = len(values), len({table.identity(value) for value in values})
    return 1 - (1 - eta_squared(values, ranks(results))) * (n - 1) / (n - kinds)


def _neighbors(numbers: list[float], results: list[float]) -> float:
    """The share that remains if neighbors differ only by chance."""
    n = len(numbers)
    if n < _FEWEST_FOR_NEIGHBORS:
        return 0.0
    order = sorted(zip(numbers, ranks(results), strict=True), key=lambda pair: pair[0])
    placed = [rank for _, rank in order]
    total = math.fsum((rank - (n + 1) / 2) ** 2 for rank in placed)
    steps = math.fsum((a - b) ** 2 for a, b in pairwise(placed))
    return 1 - steps / 2 / total if total else 0.0


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's rank correlation, -1 to 1; 0 if one side is constant."""
    return _pearson(ranks(left), ranks(right))


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values get the mean of their ranks.

    >>> ranks([10, 30, 20, 20])
    [1.0, 4.0, 2.5, 2.5]
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for index in order[start : end + 1]:
            result[index] = (start + end) / 2 + 1
        start = end + 1
    return result


def _pearson(left: list[float], right: list[float]) -> float:
    n = len(left)
    middle = (n + 1) / 2  # the mean of ranks
    above = math.fsum((a - middle) * (b - middle) for a, b in zip(left, right, strict=True))
    below = math.sqrt(
        math.fsum((a - middle) ** 2 for a in left) * math.fsum((b - middle) ** 2 for b in right)
    )
    return max(-1.0, min(1.0, above / below)) if below else 0.0


def eta_squared(kinds: Sequence[object], results: Sequence[float]) -> float:
    """The share of the variance between the groups; 0 if there is no variance."""
    mean = math.fsum(results) / len(results)
    total = math.fsum((value - mean) ** 2 for value in results)
    groups: dict[object, list[float]] = {}
    for kind, value in zip(kinds, results, strict=True):
        groups.setdefault(table.identity(kind), []).append(value)
    between = math.fsum(
        len(group) * (math.fsum(group) / len(group) - mean) ** 2 for group in groups.values()
    )
    return min(1.0, between / total) if total else 0.0
