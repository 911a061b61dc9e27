"""Messages between an interactive job and the terminal that is attached to it.

A message is a letter, the length of its content in 4 bytes, and the content.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

DATA = b"d"  # what was typed, or what the program printed
SIZE = b"s"  # of the terminal: lines and columns
NOTICE = b"n"  # a text from Stoker
EXIT = b"e"  # the program ended with this exit code
TAKEN = b"t"  # another terminal is attached now

_HEAD = struct.Struct("!cI")
_SIZE = struct.Struct("!HH")
_CODE = struct.Struct("!i")
MAX_BYTES = 1 << 20


def frame(kind: bytes, content: bytes = b"") -> bytes:
    """A message as bytes."""
    return _HEAD.pack(kind, len(content)) + content


def size_frame(lines: int, columns: int) -> bytes:
    """The message with the size of a terminal."""
    return frame(SIZE, _SIZE.pack(min(max(lines, 1), 0xFFFF), min(max(columns, 1), 0xFFFF)))


def read_size(content: bytes) -> tuple[int, int]:
    """The lines and columns of a SIZE message. Raises ValueError."""
    if len(content) != _SIZE.size:
        raise ValueError(f"a size of {len(content)} bytes")
    lines, columns = _SIZE.unpack(content)
    return lines, columns


def exit_frame(code: int) -> bytes:
    """The message that the program ended."""
    return frame(EXIT, _CODE.pack(code))


def read_exit(content: bytes) -> int:
    """The exit code of an EXIT message. Raises ValueError."""
    if len(content) != _CODE.size:
        raise ValueError(f"an exit code of {len(content)} bytes")
    return int(_CODE.unpack(content)[0])


class FrameReader:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the messages that are complete now. Raises ValueError for one that is too long."""
        self._rest += data
        while len(self._rest) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._rest)
            if length > MAX_BYTES:
                raise ValueError(f"a message of {length} bytes")
            end = _HEAD.size + length
            if len(self._rest) < end:
                return
            content, self._rest = self._rest[_HEAD.size : end], self._rest[end:]
            yield kind, content
