"""The column `devices` of attempts: numbers separated by commas."""

from __future__ import annotations


def parse_device_numbers(text: str) -> tuple[int, ...]:
    """
    >>> parse_device_numbers("0,3"), parse_device_numbers("")
    ((0, 3), ())
    """
    return tuple(int(part) for part in text.split(",") if part)
