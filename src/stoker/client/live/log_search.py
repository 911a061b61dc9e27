"""Search a log as a terminal would show it: without colors, and with only the last state of a
progress bar.

Matches are returned as byte offsets in the file; log_view.py finds the rendered line of an offset.
Cursor movements between lines are ignored, so a match may be in text that the program overwrites
later.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

_BLOCK = 1 << 20
_MAX_SEARCHED = 64 << 20  # bytes that one request searches
_MAX_COUNTED = 8 << 20  # largest log in which a search counts all matches

# Lines that report an error. A word alone is not enough ("error 0.02" is often a result).
_ERROR = re.compile(
    rb"Traceback \(most recent call last|(?:Error|Exception)\s*[:(]"
    rb"|\b(?:error|fatal|panic)\b\s*[:!\]]|out of memory|segmentation fault|core dumped"
    rb"|command not found|no such file or directory|permission denied",
    re.IGNORECASE,
)
# What a terminal does not show: text before a carriage return that other text overwrites, escape
# sequences for colors and titles, and control characters. text/logs/log_rendering.py has all
# rules; these find offsets in bytes and are fast enough for large logs.
_SEQUENCE = (
    rb"\x1b\[[0-?]{0,128}[ -/]{0,8}[@-~]"
    rb"|\x1b[\]PX^_][^\x07\x18\x1a\x1b\n]*\x07?"
    rb"|\x1b[ -/]{0,8}[0-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_HIDDEN = re.compile(
    rb"^[^\n]*\r(?=(?>" + _SEQUENCE + rb"){0,16}+[^\r\n])|\r|" + _SEQUENCE, re.MULTILINE
)


def search(descriptor: int, text: str | None, start: int) -> dict[str, object]:
    """Find the next match at or after `start`; in a small log also its number and the total.

    `text` None searches for a line that reports an error.
    """
    size = os.fstat(descriptor).st_size
    pattern = _ERROR
    if text is not None:
        pattern = re.compile(re.escape(text.encode("utf-8", "surrogateescape")), re.IGNORECASE)
    is_counted = text is not None and size <= _MAX_COUNTED
    begin = 0 if is_counted else _line_start(descriptor, min(start, size))
    stop = size if is_counted else min(size, start + _MAX_SEARCHED)
    before, found, total, searched = 0, None, 0, begin
    for place, lines in _lines(descriptor, begin, stop, size):
        for at in _matches(pattern, lines, is_line=text is None):
            total += 1
            if place + at < start:
                before += 1
            elif found is None:
                found = place + at
            if found is not None and not is_counted:
                break
        searched = place + len(lines)
        if found is not None and not is_counted:
            break
    return {
        "at": found,
        "searched_to": min(searched, size) if found is None else found,
        "size": size,
        "nth": before + 1 if is_counted and found is not None else None,
        "total": total if is_counted else None,
    }


def _matches(pattern: re.Pattern[bytes], lines: bytes, *, is_line: bool) -> Iterator[int]:
    """The offsets of matches in `lines`; with `is_line`, of the lines that contain them."""
    visible, gaps = _visible(lines)
    removed, gap = 0, 0
    for found in pattern.finditer(visible):
        begin = found.start()
        if is_line:
            begin = visible.rfind(b"\n", 0, begin) + 1
        # Hidden bytes right before a match are not part of it.
        while gap < len(gaps) and gaps[gap][0] - removed <= begin:
            removed += gaps[gap][1]
            gap += 1
        yield begin + removed


def _visible(lines: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """The visible text, and the offset and length of each part that was removed from it."""
    gaps = [(found.start(), found.end() - found.start()) for found in _HIDDEN.finditer(lines)]
    return (_HIDDEN.sub(b"", lines) if gaps else lines), gaps


def _line_start(descriptor: int, position: int) -> int:
    """The start of the line that contains a byte; searched within one block."""
    data = os.pread(descriptor, min(position, _BLOCK), max(0, position - _BLOCK))
    return position - len(data) + data.rfind(b"\n") + 1 if b"\n" in data else position - len(data)


def _lines(descriptor: int, position: int, stop: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines with their offsets; a line that is longer than a block is split."""
    while position < stop:
        position = max(position, seek(descriptor, position, os.SEEK_DATA, size))
        data = os.pread(descriptor, _BLOCK, position)
        if not data:
            return
        end = data.rfind(b"\n") + 1
        lines = data[:end] if end and len(data) == _BLOCK else data
        yield position, lines
        position += len(lines)


def seek(descriptor: int, position: int, what: int, size: int) -> int:
    """The next data or hole in a sparse file; the end of the file when there is none."""
    try:
        return os.lseek(descriptor, position, what)
    except OSError:
        return size
