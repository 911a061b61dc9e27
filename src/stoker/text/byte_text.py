"""Conversion of user text to bytes and back. Bytes that are not UTF-8 become lone surrogates."""

from __future__ import annotations

import sys

# How Python decodes arguments, variables and paths; depends on the locale.
_SYSTEM = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def to_text(blob: bytes) -> str:
    return blob.decode("utf-8", "surrogateescape")


def to_system(text: str) -> bytes:
    """Return the bytes of an argument, a variable or a path for the operating system.

    Text that the locale cannot encode was read from the database, which holds UTF-8, or comes from
    a Python program; it is encoded as UTF-8.
    """
    try:
        return text.encode(*_SYSTEM)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


def storable(text: str) -> str:
    """Return text that SQLite accepts: bytes that are not UTF-8 as escapes.

    >>> storable("\\udc8bx: command not found")
    '\\\\x8bx: command not found'
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def maybe_bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


def maybe_text(blob: bytes | None) -> str | None:
    return None if blob is None else blob.decode("utf-8", "surrogateescape")


def pack_words(words: tuple[str, ...]) -> bytes:
    return "\0".join(words).encode("utf-8", "surrogateescape")


def pack_pairs(pairs: tuple[tuple[str, str], ...]) -> bytes:
    """Return K=V pairs, each terminated by NUL, like the environment of a process."""
    return b"".join(to_bytes(f"{key}={value}") + b"\0" for key, value in pairs)


def unpack_pairs(blob: bytes) -> tuple[tuple[str, str], ...]:
    pairs = (to_text(item).partition("=") for item in blob.split(b"\0")[:-1])
    return tuple((key, value) for key, _, value in pairs)


def unpack_words(blob: bytes) -> tuple[str, ...]:
    return tuple(blob.decode("utf-8", "surrogateescape").split("\0"))
