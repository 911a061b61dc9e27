"""Suggest a known word for an unknown one: from a table of synonyms, else by similar spelling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_MIN_RATIO = 0.6
_MIN_RATIO_OTHER_INITIAL = 0.75  # typos are rare in the first letter


def nearest(
    word: str, known: Iterable[str], meanings: Mapping[str, str] | None = None
) -> str | None:
    """The known word that was most likely meant; None if none is similar.

    `meanings` maps synonyms to known words.

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
        floor = _MIN_RATIO if bare[:1] == other[:1] else _MIN_RATIO_OTHER_INITIAL
        if ratio > best_ratio and (ratio > floor or (ratio == floor and bare[:1] == other[:1])):
            best, best_ratio = option, ratio
    return best
