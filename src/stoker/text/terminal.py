"""User text for terminals: escaping of control characters, and display width.

Logs are rendered by log_rendering.py.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a line with control characters, invalid UTF-8 and direction marks escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else escape(c) for c in text)


def escape(char: str) -> str:
    """Return a character as an escape: \\n, \\x07 or \\u202e."""
    code = ord(char)
    if char == "\n":
        return "\\n"
    if char == "\t":
        return "\\t"
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def width(text: str) -> int:
    """Return the columns of a printable text: a Chinese character has two, an accent none.

    >>> width("abc"), width("日本"), width("e\u0301")
    (3, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(char: str) -> int:
    import unicodedata  # slow to import, and most text is ASCII

    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me", "Cf") else 1


def cut(text: str, limit: int) -> str:
    """Return the text, shortened with dots at the end if it is wider than `limit` columns.

    >>> cut("train.py", 8), cut("train.py --lr", 8), cut("日本日本", 6), cut("abc", 2)
    ('train.py', 'train...', '日...', '..')
    """
    if width(text) <= limit:
        return text
    if text.isascii():
        return (text[: max(0, limit - 3)] + "...")[: max(0, limit)]
    end, left = 0, limit - 3
    while left >= (columns := _columns(text[end])):
        end, left = end + 1, left - columns
    return (text[:end] + "...")[: max(0, limit)]


def pad(text: str, columns: int) -> str:
    """Return the text with spaces after it up to `columns`."""
    return text + " " * (columns - width(text))
