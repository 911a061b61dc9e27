"""Job selectors: `7`, `3-9`, `@` (the last job), `@~2` (two before it), a state, a tag, a name,
`7_3` (index 3 of array 7), `array:7`, `sweep:NAME`, `starred`, or `all`. This module only parses
them; the store finds the jobs.
"""

from __future__ import annotations

from collections.abc import Iterable

from stoker.errors import UsageError
from stoker.record import Record
from stoker.states import ACTIVE, FINAL, STATES, WAITING

_GROUPS = {"waiting": WAITING, "active": ACTIVE, "final": FINAL, "all": STATES}
_MAX_ID = 2**62


class Selector(Record):
    """An id range, a position from the end, states, a tag or a name (a bare word is both).

    With `array`, `first` and `last` are indices in it; without them, all of its jobs.
    """

    text: str
    first: int | None = None
    last: int | None = None
    back: int | None = None
    states: tuple[str, ...] | None = None
    tag: str | None = None
    name: str | None = None
    sweep: str | None = None
    array: int | None = None
    starred: bool = False


def split_words(words: Iterable[str]) -> list[str]:
    """The single selectors of words: a comma separates them, except in `name:`.

    >>> split_words(["1,failed", "name:a,b"])
    ['1', 'failed', 'name:a,b']
    """
    lists = ([word] if word.startswith("name:") else word.split(",") for word in words)
    return [one for parts in lists for one in parts]


def parse_selector(text: str) -> Selector:
    """
    >>> parse_selector("3-9").last, parse_selector("@~2").back, parse_selector("failed").states
    (9, 2, ('failed',))
    """
    if text in _GROUPS:
        return Selector(text, states=_GROUPS[text])
    if text == "starred":
        return Selector(text, starred=True)
    state = text.removeprefix("state:")
    if state in STATES:
        return Selector(text, states=(state,))
    if text.startswith("@"):
        return Selector(text, back=_steps(text))
    low, dash, high = text.partition("-" if "-" in text else "..")
    if _is_id(low) and (not dash or _is_id(high)):
        first, last = int(low), int(high or low)
        if last < first:
            raise UsageError(f"the range `{text}` is reversed", f"write {last}-{first}")
        return Selector(text, first=min(first, _MAX_ID), last=min(last, _MAX_ID))
    array = _array_selector(text)
    if array is not None:
        return array
    if not text:
        raise UsageError("the job selector is empty", "see `stoker help selectors`")
    if text.startswith("tag:") and text != "tag:":
        return Selector(text, tag=text.removeprefix("tag:"))
    if text.startswith("name:") and text != "name:":
        return Selector(text, name=text.removeprefix("name:"))
    if text.startswith("sweep:") and text != "sweep:":
        return Selector(text, sweep=text.removeprefix("sweep:"))
    return Selector(text, tag=text, name=text)


def _array_selector(text: str) -> Selector | None:
    """`7_3`, `7_3-5` or `array:7`; None for other texts."""
    whole = text.removeprefix("array:")
    if whole != text and _is_id(whole):
        return Selector(text, array=min(int(whole), _MAX_ID))
    id, line, indexes = text.partition("_")
    low, dash, high = indexes.partition("-")
    if not line or not _is_id(id) or not _is_id(low) or (dash and not _is_id(high)):
        return None
    first, last = int(low), int(high or low)
    if last < first:
        raise UsageError(f"the range `{text}` is reversed", f"write {id}_{last}-{first}")
    return Selector(
        text, first=min(first, _MAX_ID), last=min(last, _MAX_ID), array=min(int(id), _MAX_ID)
    )


def id_ranges(ids: list[int]) -> list[str]:
    """Selectors for exactly these sorted ids.

    >>> id_ranges([3, 4, 5, 9])
    ['3-5', '9']
    """
    ranges: list[list[int]] = []
    for job in ids:
        if ranges and ranges[-1][1] == job - 1:
            ranges[-1][1] = job
        else:
            ranges.append([job, job])
    return [f"{first}-{last}" if last > first else str(first) for first, last in ranges]


def _steps(text: str) -> int:
    if text == "@":
        return 0
    if text.startswith("@~") and _is_id(text[2:]):
        return min(int(text[2:]), _MAX_ID)
    raise UsageError(
        f"`{text}` is not a selector", "write @ for the last job, @~1 for the one before"
    )


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20
