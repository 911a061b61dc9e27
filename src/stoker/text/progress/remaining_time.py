"""When a running job likely ends: from its own progress, from earlier jobs, or from its limit.

The best known source is used:

1. the steps a second of its newest reports, if it also reports how many steps there are;
2. the part of its work that it reports as done, and the time that this took;
3. the duration of earlier jobs of its command profile;
4. its time limit, which is only a bound.

A resumed job did a part of its work in an earlier attempt, so 2 counts less than 3 for it.
"""

from __future__ import annotations

from stoker.record import Record
from stoker.text.progress.progress_number import WorkDone

PROGRESS, PROFILE, LIMIT = "progress", "profile", "limit"

# Below this part of the work, the start of a program (imports, data) distorts the speed.
_SMALL_PART = 0.02


class Remaining(Record):
    """Seconds until the likely end of a job. `source`: progress, profile or limit."""

    seconds: float
    source: str

    @property
    def is_bound(self) -> bool:
        """Whether the job ends after `seconds` at the latest, and likely earlier."""
        return self.source == LIMIT


class StepReport(Record):
    """A step that a job reported, and when (in seconds since its start)."""

    step: float
    at: float


def remaining_time(
    *,
    elapsed: float,
    work: WorkDone | None = None,
    work_at: float | None = None,
    steps: tuple[StepReport, StepReport] | None = None,
    is_resumed: bool = False,
    estimate: float | None = None,
    limit: float | None = None,
) -> Remaining | None:
    """Return the time until the end of a job that has run for `elapsed` seconds; None: unknown.

    `work_at`: when `work` was reported, in seconds since the start; None: now. `steps`: two reports
    of one attempt. `estimate`: the duration of earlier jobs. `limit`: seconds of its time limit.

    >>> remaining_time(elapsed=60, work=WorkDone(30, 100), work_at=60)
    Remaining(seconds=140.0, source='progress')
    >>> remaining_time(elapsed=60, estimate=100)
    Remaining(seconds=40, source='profile')
    >>> remaining_time(elapsed=60, limit=100)
    Remaining(seconds=40, source='limit')
    """
    left = None if limit is None else max(0.0, limit - elapsed)
    seconds, source = _expected(elapsed, work, work_at, steps, is_resumed, estimate)
    if seconds is None:
        return None if left is None else Remaining(left, LIMIT)
    return Remaining(seconds if left is None else min(seconds, left), source)


def _expected(
    elapsed: float,
    work: WorkDone | None,
    work_at: float | None,
    steps: tuple[StepReport, StepReport] | None,
    is_resumed: bool,
    estimate: float | None,
) -> tuple[float | None, str]:
    by_steps = _by_steps(elapsed, work, steps)
    if by_steps is not None:
        return by_steps, PROGRESS
    fraction = None if work is None else work.fraction
    by_work = None
    if fraction:
        at = elapsed if work_at is None else min(work_at, elapsed)
        by_work = max(0.0, at * (1 - fraction) / fraction - (elapsed - at))
        if fraction >= _SMALL_PART and not is_resumed:
            return by_work, PROGRESS
    if estimate is not None:
        # As in `likely_end_of_running`: a job past its estimate runs for half of its time again.
        return (estimate - elapsed if estimate > elapsed else elapsed / 2), PROFILE
    return by_work, PROGRESS


def _by_steps(
    elapsed: float, work: WorkDone | None, steps: tuple[StepReport, StepReport] | None
) -> float | None:
    """By the speed between two reports, if the newer one counts the same thing as the work."""
    if steps is None or work is None or not work.total:
        return None
    first, last = steps
    is_same = abs(last.step - work.done) <= max(1.0, 0.01 * work.total)
    if not is_same or last.step <= first.step or last.at <= first.at:
        return None
    speed = (last.step - first.step) / (last.at - first.at)
    return max(0.0, (work.total - last.step) / speed - max(0.0, elapsed - last.at))
