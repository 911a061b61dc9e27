"""What was most likely meant by a word that nothing is called: a table first, then the spelling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_ALIKE = 0.6
_ALIKE_BUT_FOR_THE_START = 0.75  # slips are rare in the first letter


def nearest(
    word: str, known: Iterable[str], meanings: Mapping[str, str] | None = None
) -> str | None:
    """The known word that was most likely meant.

    >>> nearest("sumbit", ["submit", "status"]), nearest("--cpus", ["--gpus"])
    ('submit', None)
    """
    options = list(known)
    meant = (meanings or {}).get(word)
    if meant is not None and meant in options:
        return meant
    from difflib import SequenceMatcher

    best, best_ratio = None, 0.0
    for option in options:
        bare, other = word.lstrip("-"), option.lstrip("-")
        ratio = SequenceMatcher(None, bare, other).ratio()
        floor = _ALIKE if bare[:1] == other[:1] else _ALIKE_BUT_FOR_THE_START
        if ratio > best_ratio and (ratio > floor or (ratio == floor and bare[:1] == other[:1])):
            best, best_ratio = option, ratio
    return best
