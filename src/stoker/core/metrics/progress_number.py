"""The amount of work in the text that a job reports as its progress."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(?:/|of) ?\d")


def progress_number(text: str) -> float | None:
    """Return the number that grows with the work; None if the text has none.

    >>> progress_number("epoch 2: 40% done"), progress_number("step 120/1000, loss 0.3")
    (40.0, 120.0)
    >>> progress_number("step 7"), progress_number("starting")
    (7.0, None)
    """
    for pattern in (_PERCENT, _PART):
        found = pattern.search(text)
        if found is not None:
            return float(found[1])
    numbers = _NUMBER.findall(text)
    return float(numbers[0]) if len(numbers) == 1 else None
