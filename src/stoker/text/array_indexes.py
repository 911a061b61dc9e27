"""The indices of a job array: `0-99`, `0-15:4`, `1,3,5-7`, each with `%8` for at most 8 at once."""

from __future__ import annotations

from stoker.errors import UsageError
from stoker.record import Record
from stoker.text.plurals import plural

MAX_JOBS = 1_000_000
_MAX_INDEX = 2**31 - 1
_HINT = "write 0-9, 0-15:4 (every fourth), 1,3,5-7, or 0-99%8 (at most 8 at once)"


class Array(Record):
    indexes: tuple[int, ...]  # sorted
    most: int | None  # how many of its jobs run at once; None: no limit

    @property
    def step(self) -> int:
        """The distance of the indices; 1 if they have no common one."""
        gaps = {high - low for low, high in zip(self.indexes, self.indexes[1:], strict=False)}
        return gaps.pop() if len(gaps) == 1 else 1

    def variables(self, *, is_slurm: bool) -> tuple[tuple[str, str], ...]:
        """The environment variables that all jobs of the array share."""
        values = {
            "COUNT": len(self.indexes),
            "MIN": self.indexes[0],
            "MAX": self.indexes[-1],
            "STEP": self.step,
        }
        prefixes = ("STOKER_ARRAY_", "SLURM_ARRAY_TASK_") if is_slurm else ("STOKER_ARRAY_",)
        return tuple(
            (f"{prefix}{key}", str(value)) for prefix in prefixes for key, value in values.items()
        )


def parse_array(text: str) -> Array:
    """
    >>> parse_array("0-6:2,9%4")
    Array(indexes=(0, 2, 4, 6, 9), most=4)

    Raises UsageError for everything else.
    """
    indexes, percent, limit = text.partition("%")
    most = _number(limit) if percent else None
    if most == 0:
        raise UsageError(f"`{text}` would run no job", "write %1 to run one job at a time")
    found: set[int] = set()
    for part in indexes.split(","):
        span, colon, step = part.partition(":")
        low, dash, high = span.partition("-")
        first, by = _number(low), _number(step) if colon else 1
        last = _number(high) if dash else first
        if first is None or last is None or not by or (percent and most is None):
            raise UsageError(f"`{text}` is not a list of array indices", _HINT)
        if last < first:
            raise UsageError(f"the range `{span}` is reversed", f"write {last}-{first}")
        if (last - first) // by >= MAX_JOBS:
            raise _too_many((last - first) // by + 1)
        found.update(range(first, last + 1, by))
    if len(found) > MAX_JOBS:
        raise _too_many(len(found))
    return Array(tuple(sorted(found)), most)


def _too_many(count: int) -> UsageError:
    return UsageError(
        f"an array of {count} jobs is too large", f"at most {plural(MAX_JOBS, 'job')}"
    )


def _number(text: str) -> int | None:
    """A number without a sign; None if it is not one, or too large."""
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        return None
    return int(text) if int(text) <= _MAX_INDEX else None


def format_indexes(indexes: tuple[int, ...]) -> str:
    """
    >>> format_indexes((0, 1, 2, 5, 10, 20, 30))
    '0-2,5,10-30:10'
    """
    parts: list[str] = []
    place = 0
    while place < len(indexes):
        first, end, step = indexes[place], place, 0
        if place + 2 < len(indexes):
            step = indexes[place + 1] - first
            while end + 1 < len(indexes) and indexes[end + 1] - indexes[end] == step:
                end += 1
        if end - place < 2:  # a range of two is not shorter
            end = place
        last = indexes[end]
        by = f":{step}" if step > 1 else ""
        parts.append(str(first) if end == place else f"{first}-{last}{by}")
        place = end + 1
    return ",".join(parts)
