"""User text in our own lines on people's terminals: dangerous bytes made harmless, width known.

Whole logs are read with logview.py.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """One line of user text with control characters, broken bytes and direction marks escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(char: str) -> str:
    code = ord(char)
    if char == "\n":
        return "\\n"
    if char == "\t":
        return "\\t"
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def width(text: str) -> int:
    """The columns that a printable text takes: a Chinese character two, a combining accent none.

    >>> width("abc"), width("日本"), width("e\u0301")
    (3, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(char: str) -> int:
    import unicodedata  # large, and most text does without it

    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me", "Cf") else 1


def cut(text: str, limit: int) -> str:
    """The text, or as much of it as fits with dots behind.

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
    """Blanks behind it up to so many columns."""
    return text + " " * (columns - width(text))
