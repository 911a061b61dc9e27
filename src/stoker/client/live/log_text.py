"""The log of a job as plain text: what `stoker log` shows, without colors."""

from __future__ import annotations

import os
from collections.abc import Iterator

from stoker.engine.supervisor.regular_files import open_for_reading
from stoker.text.byte_text import to_text
from stoker.text.logs.log_rendering import LogView, dropped_note

_BLOCK = 1 << 16
_TAIL_BYTES = 64 << 10


def log_text(path: str) -> str:
    """The whole log, with progress bars collapsed and escape sequences removed; "" without one."""
    return "".join(f"{line}\n" for line in _lines(path, 0))


def last_lines(path: str, count: int) -> list[str]:
    """The last lines of a log; reads only the end of the file."""
    try:
        size = os.stat(path).st_size
    except OSError:
        return []
    try:
        lines = _lines(path, max(0, size - _TAIL_BYTES))
    except OSError:
        return []
    while lines and not lines[-1].strip():
        lines.pop()
    return lines[-count:]


def _lines(path: str, start: int) -> list[str]:
    try:
        descriptor = open_for_reading(path)
    except FileNotFoundError:
        return []
    try:
        return [show_bytes(line) for line in read_lines(read_from(descriptor, start))]
    finally:
        os.close(descriptor)


def read_lines(blocks: Iterator[bytes]) -> list[str]:
    """The lines that a terminal would show, without colors."""
    view = LogView(False)
    lines: list[str] = []
    rest = b""
    for block in blocks:
        data = rest + block
        cut = whole_characters(data)
        rest = data[cut:]
        lines += view.feed(to_text(data[:cut]))
    return [*lines, *view.feed(to_text(rest)), *view.finish()]


def whole_characters(data: bytes) -> int:
    """The length of `data` without an incomplete UTF-8 character at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            needs = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if needs > back else len(data)
        if byte < 0x80:
            break
    return len(data)


def read_from(descriptor: int, start: int) -> Iterator[bytes]:
    """The file from an offset on. A hole, where old output was dropped, yields a short note."""
    position = start
    while True:
        try:
            data_at = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError:
            return  # nothing but a hole, or the end
        if data_at > position + 4096:
            yield f"\n{dropped_note(data_at - position)}\n".encode()
        position = data_at
        hole = os.lseek(descriptor, position, os.SEEK_HOLE)
        while position < hole:
            block = os.pread(descriptor, min(_BLOCK, hole - position), position)
            if not block:
                return
            position += len(block)
            yield block


def show_bytes(text: str) -> str:
    """The text with bytes that were not UTF-8 shown as \\xNN."""
    return text if text.isascii() else text.translate(_SHOWN_BYTES)


_SHOWN_BYTES = {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}
