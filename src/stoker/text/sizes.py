"""Sizes in bytes: parsing and formatting. Stoker prints units of 1024: KiB, MiB, GiB."""

from __future__ import annotations

from stoker.errors import UsageError

_UNITS = ("", "k", "m", "g", "t")
_MAX_BYTES = 1 << 62


def parse_size(text: str) -> int:
    """Return the bytes of `512`, `20G`, `20GiB` (units of 1024) or `20GB` (units of 1000).

    Raises UsageError.

    >>> parse_size("20G") == parse_size("20GiB") == 20 * 2**30, parse_size("20GB") == 20 * 10**9
    (True, True)
    """
    word = text.strip().lower()
    base = 1000 if word.endswith("b") and not word.endswith("ib") else 1024
    word = word.removesuffix("ib" if base == 1024 else "b")
    unit = word[-1:] if word[-1:].isalpha() else ""
    number = word.removesuffix(unit)
    digits = number.replace(".", "", 1)
    if unit in _UNITS and digits.isascii() and digits.isdigit():
        size = float(number) * base ** _UNITS.index(unit)
        if size <= _MAX_BYTES:
            return int(size)
    raise UsageError(f"`{text}` is not a size", "write 512M, 20G or a number of bytes")


def format_size(count: float) -> str:
    """
    >>> format_size(1536), format_size(20 * 2**30)
    ('1.5 KiB', '20 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
