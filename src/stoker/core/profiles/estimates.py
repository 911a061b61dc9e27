"""Estimates of durations: the one object that the daemon, `why`, forecasts and `simulate` read.

Jobs carry the number of their command profile, never a copy of its estimate, so an estimate that
changes holds at once for waiting and running jobs alike. Durations of training jobs are heavy
tailed, so a profile keeps a geometric mean and the spread around it as a factor: one attempt that
takes a hundred times as long as usual does not make all later ones look long.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log

from stoker.core.record import Record

# The mean of all attempts so far, and from ten on a moving one: programs change.
_MOST_WEIGHT_OF_THE_PAST = 0.9
_SHORTEST = 1.0  # seconds; below that it is noise
# An estimate lets a job run ahead of a reservation only where durations are within a factor of 2.
_WIDEST_SPREAD = log(2)
_MARGIN = 1.5
_MANY_RUNS = 100


class Estimate(Record):
    """How long a job of one command profile takes."""

    seconds: float  # geometric mean
    spread: float = 0.0  # mean distance from it, as the logarithm of a factor
    runs: int = _MANY_RUNS

    @property
    def is_steady(self) -> bool:
        """Whether the durations are alike enough to plan with."""
        return self.spread <= _WIDEST_SPREAD

    @property
    def bound(self) -> float | None:
        """Seconds after which a job is trusted to be over; None where the durations vary widely.

        Few runs say little about how much durations vary, so they get a wider margin.
        """
        if not self.is_steady:
            return None
        return _MARGIN * self.seconds * exp(2 * max(self.spread, 0.5 / self.runs))


def learned(known: Estimate | None, seconds: float) -> Estimate:
    """The estimate after one more successful attempt that took so long."""
    if known is None:
        return Estimate(seconds, 0.0, 1)
    past = min(_MOST_WEIGHT_OF_THE_PAST, known.runs / (known.runs + 1))
    mean = log(max(known.seconds, _SHORTEST))
    distance = log(max(seconds, _SHORTEST)) - mean
    if mean == distance == 0.0:
        average = past * known.seconds + (1 - past) * seconds
    else:
        average = exp(mean + (1 - past) * distance)
    spread = past * known.spread + (1 - past) * abs(distance)
    return Estimate(average, spread, known.runs + 1)


def length_class(known: Estimate | None) -> int:
    """n for durations from 2^(n-1) to 2^n seconds, 0 when unknown: request groups differ in it."""
    return 0 if known is None else max(1, int(known.seconds).bit_length())


class Estimates(Record):
    """What one decision knows about durations; profile 0 is that of jobs without a profile."""

    by_profile: Mapping[int, Estimate]
    typical: float = 0.0  # seconds that a job is taken to need when its profile is unknown

    def of(self, profile: int) -> Estimate | None:
        return self.by_profile.get(profile)

    def seconds(self, profile: int) -> float | None:
        known = self.by_profile.get(profile)
        return None if known is None else known.seconds

    def bound(self, profile: int) -> float | None:
        known = self.by_profile.get(profile)
        return None if known is None else known.bound


NO_ESTIMATES = Estimates({})
