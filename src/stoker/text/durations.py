"""Durations: parsing and formatting."""

from __future__ import annotations

from stoker.errors import UsageError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_MAX_SECONDS = 1e10  # three centuries; longer values are typos, and floats stay exact
_MANY_DIGITS = 30  # more than any valid value; int() refuses texts of 4300 digits


def parse_duration(text: str, bare: str = "m") -> float:
    """Return the seconds of `90s`, `30m`, `1h30m`, `2d`, `HH:MM:SS` or `D-HH:MM:SS`.

    A number without a unit is in units of `bare`. Raises UsageError.

    >>> parse_duration("1h30m"), parse_duration("01:30:00"), parse_duration("90")
    (5400.0, 5400.0, 5400.0)
    """
    stripped = text.strip().lower()
    seconds = _clock(stripped) if ":" in stripped else _unit_sum(stripped, bare)
    if seconds is None or seconds > _MAX_SECONDS:
        raise UsageError(
            f"`{text}` is not a duration", "write 90s, 30m, 2h, 1d, HH:MM:SS or D-HH:MM:SS"
        )
    return seconds


def _clock(text: str) -> float | None:
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    numbers = [days, *parts] if dash else parts
    if not 2 <= len(parts) <= 3:
        return None
    if not all(n.isascii() and n.isdigit() and len(n) <= _MANY_DIGITS for n in numbers):
        return None
    hours, minutes, seconds = (int(p) for p in (parts if len(parts) == 3 else [*parts, "0"]))
    if len(parts) == 2 and not dash:  # MM:SS, as Slurm reads it
        hours, minutes, seconds = 0, hours, minutes
    return float(int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds)


def _unit_sum(text: str, bare: str) -> float | None:
    import re  # here, because most commands have no duration and `re` takes a tenth of their time

    if re.fullmatch(_NUMBER, text):
        return float(text) * _UNITS[bare]
    parts = re.findall(f"({_NUMBER})([smhdw])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None  # also `1h30`: the unit of 30 is missing
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def format_duration(seconds: float) -> str:
    """
    >>> format_duration(0.25), format_duration(75), format_duration(3700), format_duration(90000)
    ('0.2s', '1m15s', '1h01m', '1d01h')
    """
    if seconds < 10:
        return f"{max(0.0, seconds):.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"
