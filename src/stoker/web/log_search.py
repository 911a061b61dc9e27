"""Text in a log as a reader sees it: without colours, and of a progress bar only its last state.

What is found is told as a byte of the file. Cursor movements between lines are not followed: a
match is at worst in a line that a later one has overwritten.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

_BLOCK = 1 << 20
_MOST_SEARCHED = 64 << 20  # bytes that one request looks through
_MOST_COUNTED = 8 << 20  # of a log in which every match is counted, each time one is looked for

# What a person would jump to. Words alone ("error 0.02") are results as often as failures.
_ERROR = re.compile(
    rb"Traceback \(most recent call last|(?:Error|Exception)\s*[:(]"
    rb"|\b(?:error|fatal|panic)\b\s*[:!\]]|out of memory|segmentation fault|core dumped"
    rb"|command not found|no such file or directory|permission denied",
    re.IGNORECASE,
)
# What a terminal would not show: a line up to the carriage return that goes back to its beginning,
# sequences for colours, titles and the like, and control characters.
_HIDDEN = re.compile(
    rb"^[^\n]*\r(?=[^\r\n])"
    rb"|\x1b\[[0-?]{0,128}[ -/]{0,8}[@-~]"
    rb"|\x1b[\]PX^_][^\x07\x18\x1a\x1b\n]*\x07?"
    rb"|\x1b[ -/]{0,8}[0-~]|[\x00-\x08\x0b-\x1f\x7f]",
    re.MULTILINE,
)


def search(descriptor: int, text: str | None, start: int) -> dict[str, object]:
    """The next match at or behind `start`; in a small log also which of how many it is."""
    size = os.fstat(descriptor).st_size
    pattern = _ERROR
    if text is not None:
        pattern = re.compile(re.escape(text.encode("utf-8", "surrogateescape")), re.IGNORECASE)
    is_counted = text is not None and size <= _MOST_COUNTED
    begin = 0 if is_counted else _line_start(descriptor, min(start, size))
    stop = size if is_counted else min(size, start + _MOST_SEARCHED)
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
        "at": found, "searched_to": min(searched, size) if found is None else found, "size": size,
        "nth": before + 1 if is_counted and found is not None else None,
        "total": total if is_counted else None,
    }  # fmt: skip


def _matches(pattern: re.Pattern[bytes], lines: bytes, *, is_line: bool) -> Iterator[int]:
    """Where matches begin in `lines`; an error is its whole line."""
    shown, gaps = _shown(lines)
    removed, gap = 0, 0
    for found in pattern.finditer(shown):
        begin = found.start()
        if is_line:
            begin = shown.rfind(b"\n", 0, begin) + 1
        # What is cut away right before a match belongs to its colour, not to it.
        while gap < len(gaps) and gaps[gap][0] - removed <= begin:
            removed += gaps[gap][1]
            gap += 1
        yield begin + removed


def _shown(lines: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """(what is seen, [(where something was left out, its length), ...])."""
    gaps = [(found.start(), found.end() - found.start()) for found in _HIDDEN.finditer(lines)]
    return (_HIDDEN.sub(b"", lines) if gaps else lines), gaps


def _line_start(descriptor: int, position: int) -> int:
    """The beginning of the line that a byte is in, so far as one block tells."""
    data = os.pread(descriptor, min(position, _BLOCK), max(0, position - _BLOCK))
    return position - len(data) + data.rfind(b"\n") + 1 if b"\n" in data else position - len(data)


def _lines(descriptor: int, position: int, stop: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines and where they are; a line that is longer than a block is cut."""
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
    """The next data or hole; the end where there is none."""
    try:
        return os.lseek(descriptor, position, what)
    except OSError:
        return size
