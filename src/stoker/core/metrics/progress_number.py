"""The amount of work in the text that a job reports as its progress."""

from __future__ import annotations

import re

from stoker.core.record import Record

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(?:/|of) ?(\d+(?:\.\d+)?)")


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


def progress_number(text: str) -> float | None:
    """Return the number that grows with the work; None if the text has none.

    >>> progress_number("epoch 2: 40% done"), progress_number("step 120/1000, loss 0.3")
    (40.0, 120.0)
    >>> progress_number("step 7"), progress_number("starting")
    (7.0, None)
    """
    found = work_done(text)
    return None if found is None else found.done
