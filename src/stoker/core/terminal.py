"""User text in our own lines on people's terminals: dangerous bytes made harmless.

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
