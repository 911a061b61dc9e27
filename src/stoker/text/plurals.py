"""Counted nouns in messages."""

from __future__ import annotations


def plural(count: int, word: str) -> str:
    """
    >>> plural(0, "job"), plural(1, "job"), plural(2, "GPU")
    ('0 jobs', '1 job', '2 GPUs')
    """
    return f"{count} {plural_word(count, word)}"


def plural_word(count: int, word: str) -> str:
    """The noun without the number, for texts such as "jobs 3, 4"."""
    return word if count == 1 else f"{word}s"
