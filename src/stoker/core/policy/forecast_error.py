"""How wrong forecasts were: predicted and real starts of earlier jobs.

A forecast of hours is less precise than one of minutes, so errors are kept by horizon, the time
between the forecast and the predicted start. `typical_error` returns the error that three of four
forecasts with a similar horizon did not exceed.

>>> errors = NO_ERRORS
>>> for late in (10.0, 20.0, 30.0, 40.0, 300.0):
...     errors = add_error(errors, horizon=120.0, error=late)
>>> typical_error(errors, 90.0), typical_error(errors, 7200.0)
(40.0, None)
>>> StartForecast(720.0, 240.0).words()
'in 12m00s ±4m00s'
"""

from __future__ import annotations

from stoker.core.formats.durations import format_duration
from stoker.core.formats.plurals import plural
from stoker.core.record import Record

_BOUNDS = (600.0, 3600.0, 6 * 3600.0)  # seconds between classes of horizons
_KEPT = 40  # errors of one class; the oldest is dropped
_FEWEST = 5  # fewer errors say nothing
_USUALLY = 0.75
_SMALLEST = 1.0  # seconds; a smaller error is noise

# Seconds by class of horizon, the newest last; positive: the job started later than forecast.
Errors = tuple[tuple[float, ...], ...]
NO_ERRORS: Errors = ((),) * (len(_BOUNDS) + 1)


class StartForecast(Record):
    """When a job likely starts: in `seconds`, usually right to within `error` (None: unknown)."""

    seconds: float
    error: float | None = None

    def words(self) -> str:
        """`in 12m00s ±4m00s`, for cells."""
        return f"in {format_duration(self.seconds)}" + (
            "" if self.error is None else f" ±{format_duration(self.error)}"
        )

    def error_words(self) -> str:
        """` (usually right to within 4m00s)`; "" if the error is unknown."""
        if self.error is None:
            return ""
        return f" (usually right to within {format_duration(self.error)})"


def add_error(errors: Errors, horizon: float, error: float) -> Errors:
    """Return the errors with one more: a job started `error` seconds after its forecast."""
    place = _class_of(horizon)
    newest = (*errors[place], round(error, 1))[-_KEPT:]
    return (*errors[:place], newest, *errors[place + 1 :])


def typical_error(errors: Errors, horizon: float) -> float | None:
    """Return the usual error of a forecast with this horizon; None with few samples."""
    known = sorted(map(abs, errors[_class_of(horizon)]))
    if len(known) < _FEWEST:
        return None
    place = min(len(known) - 1, round(_USUALLY * (len(known) - 1) + 0.5 - 1e-9))
    return max(_SMALLEST, float(round(known[place])))


class PastError(Record):
    """How the starts of `jobs` earlier jobs differed from their forecasts, on average."""

    jobs: int
    late: float  # seconds; negative: earlier than forecast

    def words(self) -> str:
        """
        >>> PastError(37, 240.0).words()
        'starts were on average 4m00s later than forecast, over 37 jobs'
        >>> PastError(1, -65.0).words()
        'starts were on average 1m05s earlier than forecast, over 1 job'
        >>> PastError(8, 0.2).words()
        'starts were on average as forecast, to within a second, over 8 jobs'
        >>> PastError(0, 0.0).words()
        'no start was compared with its forecast yet'
        """
        if not self.jobs:
            return "no start was compared with its forecast yet"
        if abs(self.late) < _SMALLEST:
            middle = "as forecast, to within a second"
        else:
            order = "later" if self.late > 0 else "earlier"
            middle = f"{format_duration(abs(self.late))} {order} than forecast"
        return f"starts were on average {middle}, over {plural(self.jobs, 'job')}"


def past_error(errors: Errors) -> PastError:
    """Return the mean difference between starts and forecasts, over all horizons."""
    known = [error for some in errors for error in some]
    return PastError(len(known), sum(known) / len(known) if known else 0.0)


def _class_of(horizon: float) -> int:
    return sum(horizon >= bound for bound in _BOUNDS)


def to_text(errors: Errors) -> str:
    """The errors as one line.

    >>> from_text(to_text(add_error(NO_ERRORS, 60.0, -12.5)))
    ((-12.5,), (), (), ())
    >>> from_text("damaged")
    ((), (), (), ())
    """
    return ";".join(",".join(map(str, some)) for some in errors)


def from_text(text: str) -> Errors:
    """The errors of a line; none if it is not valid."""
    try:
        found = tuple(
            tuple(float(word) for word in part.split(",") if word) for part in text.split(";")
        )
    except ValueError:
        return NO_ERRORS
    return found if len(found) == len(NO_ERRORS) else NO_ERRORS
