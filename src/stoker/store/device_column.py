"""The column `devices` of attempts: numbers separated by commas."""

from __future__ import annotations


def parse_devices(text: str) -> tuple[int, ...]:
    """
    >>> parse_devices("0,3"), parse_devices("")
    ((0, 3), ())
    """
    return tuple(int(part) for part in text.split(",") if part)
