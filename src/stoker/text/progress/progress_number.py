"""The amount of work in the text that a job reports as its progress, and when it likely ends."""

from __future__ import annotations

import re

from stoker.record import Record

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(?:/|of) ?(\d+(?:\.\d+)?)")
# epoch 1:  42%|####      | 42/100 [00:12<00:17,  3.4it/s, loss=0.2]
_COUNT = r"\d+(?:\.\d+)?[kMGT]?"
_BAR = re.compile(
    r"\d{1,3}%\|[^|\r\n]*\| *(?P<done>N)/(?P<total>N) \[(?P<elapsed>\d+(?::\d\d)+)<".replace(
        "N", _COUNT
    )
)
_MAX_LABEL = 40


class WorkDone(Record):
    """How much of its work a job has done; `total` is None if the text does not say it."""

    done: float
    total: float | None

    @property
    def fraction(self) -> float | None:
        """From 0 to 1; None if the total is unknown."""
        if not self.total:
            return None
        return min(1.0, self.done / self.total)


def work_done(text: str) -> WorkDone | None:
    """Return the work done according to a text; None if the text has no such number.

    >>> work_done("epoch 2: 40% done"), work_done("step 120/1000, loss 0.3")
    (WorkDone(done=40.0, total=100.0), WorkDone(done=120.0, total=1000.0))
    >>> work_done("step 7"), work_done("starting")
    (WorkDone(done=7.0, total=None), None)
    >>> work_done("step 120/1000").fraction
    0.12
    """
    found = _PERCENT.search(text)
    if found is not None:
        return WorkDone(float(found[1]), 100.0)
    found = _PART.search(text)
    if found is not None:
        return WorkDone(float(found[1]), float(found[2]) or None)
    numbers = _NUMBER.findall(text)
    return WorkDone(float(numbers[0]), None) if len(numbers) == 1 else None


def progress_bar(tail: str, elapsed: float) -> tuple[str, WorkDone | None] | None:
    """Return text and work of the last progress bar of tqdm in the end of a log; None without one.

    The work is None if the bar is only a part of the job: it is full, began late in the `elapsed`
    seconds of the job, or is one of several epochs whose number is unknown.

    >>> progress_bar("epoch 2/4:  50%|####    | 5/10 [00:30<00:30,  6.0s/it, loss=1]", 90)
    ('epoch 2/4: 5/10', WorkDone(done=1.5, total=4.0))
    >>> progress_bar(" 50%|####    | 1.5k/3.0k [01:00<01:00, 25it/s]", 61)
    ('1.5k/3.0k', WorkDone(done=1500.0, total=3000.0))
    >>> progress_bar("epoch 2:  50%|####    | 5/10 [00:30<00:30,  6.0s/it]", 31)
    ('epoch 2: 5/10', None)
    """
    bars = list(_BAR.finditer(tail))
    if not bars:
        return None
    found = bars[-1]
    before = re.split(r"[\r\n]", tail[: found.start()])[-1]
    label = " ".join(before.split())[-_MAX_LABEL:].rstrip(": ")
    text = f"{found['done']}/{found['total']}"
    done, total = (_count(found[key]) for key in ("done", "total"))
    text = f"{label}: {text}" if label else text
    part = _PART.search(label)
    if not total or done >= total:
        return text, None
    if part is not None and 0 < float(part[1]) <= float(part[2]):
        return text, WorkDone(float(part[1]) - 1 + done / total, float(part[2]))
    clock = [float(one) for one in found["elapsed"].split(":")]
    seconds = sum(one * 60**place for place, one in enumerate(reversed(clock)))
    is_whole = seconds >= elapsed / 2 and not re.search(r"epoch|\bep\b", label, re.IGNORECASE)
    return text, WorkDone(done, total) if is_whole else None


def _count(text: str) -> float:
    """`120`, or `1.5k` as tqdm writes it with `unit_scale`."""
    scale = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(text[-1], 1.0)
    return float(text.rstrip("kMGT")) * scale


def progress_number(text: str) -> float | None:
    """Return the number that grows with the work; None if the text has none.

    >>> progress_number("epoch 2: 40% done"), progress_number("step 120/1000, loss 0.3")
    (40.0, 120.0)
    >>> progress_number("step 7"), progress_number("starting")
    (7.0, None)
    """
    found = work_done(text)
    return None if found is None else found.done


PROGRESS, PROFILE, LIMIT = "progress", "profile", "limit"

# When a running job likely ends: from its own progress, from earlier jobs, or from its limit.
#
# The best known source is used:
#
# 1. the steps a second of its newest reports, if it also reports how many steps there are;
# 2. the part of its work that it reports as done, and the time that this took;
# 3. the duration of earlier jobs of its command profile;
# 4. its time limit, which is only a bound.
#
# A resumed job did a part of its work in an earlier attempt, so 2 counts less than 3 for it.

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
