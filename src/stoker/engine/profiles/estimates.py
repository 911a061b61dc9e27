"""Estimates of durations, for the daemon, `why`, forecasts and `simulate`.

Jobs hold the number of their command profile, not a copy of its estimate, so a new estimate applies
at once to waiting and running jobs. Durations of training jobs are heavy-tailed, so a profile has a
geometric mean and a spread as a factor: one attempt that takes a hundred times as long as usual
changes the estimate only a little.
"""

from __future__ import annotations

from collections.abc import Mapping

from stoker.record import Record

# Plain mean of the first ten attempts, then an exponential moving average: programs change.
_MAX_PAST_WEIGHT = 0.9
_SHORTEST = 1.0  # seconds; differences below that are noise
# Estimates are used for backfill only if durations are within a factor of 2.
_MAX_SPREAD = 0.693147  # the logarithm of 2
_MARGIN = 1.5
_MANY_RUNS = 100


class Estimate(Record):
    """The duration of a job of one command profile."""

    seconds: float  # geometric mean
    spread: float = 0.0  # mean distance from it, as the logarithm of a factor
    runs: int = _MANY_RUNS

    @property
    def is_steady(self) -> bool:
        """Whether the durations vary little enough for backfill."""
        return self.spread <= _MAX_SPREAD

    @property
    def bound(self) -> float | None:
        """Seconds after which a job should have ended; None if the durations vary widely.

        After few attempts the variation is uncertain, so the margin is wider.
        """
        if not self.is_steady:
            return None
        from math import exp  # here, because `stoker submit` does not need it

        return _MARGIN * self.seconds * exp(2 * max(self.spread, 0.5 / self.runs))


def update_estimate(known: Estimate | None, seconds: float) -> Estimate:
    """Return the estimate after one more successful attempt of `seconds`."""
    from math import exp, log

    if known is None:
        return Estimate(seconds, 0.0, 1)
    past = min(_MAX_PAST_WEIGHT, known.runs / (known.runs + 1))
    mean = log(max(known.seconds, _SHORTEST))
    distance = log(max(seconds, _SHORTEST)) - mean
    if mean == distance == 0.0:
        average = past * known.seconds + (1 - past) * seconds
    else:
        average = exp(mean + (1 - past) * distance)
    spread = past * known.spread + (1 - past) * abs(distance)
    return Estimate(average, spread, known.runs + 1)


def length_class(known: Estimate | None) -> int:
    """Return n for durations from 2^(n-1) to 2^n seconds, 0 if unknown.

    Jobs of different length classes are in different request groups.
    """
    return 0 if known is None else max(1, int(known.seconds).bit_length())


_NO_SPEEDS: Mapping[int, Mapping[int, float]] = {}


class Estimates(Record):
    """The estimates for one decision. Jobs without a profile have the profile 0."""

    by_profile: Mapping[int, Estimate]
    typical: float = 0.0  # seconds, for jobs without an estimate
    speeds: Mapping[int, Mapping[int, float]] = _NO_SPEEDS  # of a job, by profile and jobs on a GPU

    def of(self, profile: int) -> Estimate | None:
        return self.by_profile.get(profile)

    def seconds(self, profile: int) -> float | None:
        known = self.by_profile.get(profile)
        return None if known is None else known.seconds

    def bound(self, profile: int) -> float | None:
        known = self.by_profile.get(profile)
        return None if known is None else known.bound


NO_ESTIMATES = Estimates({})
