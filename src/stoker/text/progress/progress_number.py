"""The amount of work in the text that a job reports as its progress."""

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
