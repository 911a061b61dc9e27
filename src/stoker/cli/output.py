"""Print tables, colors and JSON. Results go to stdout, errors, hints and notices to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from stoker.errors import OutputFailed
from stoker.text.plurals import plural as plural
from stoker.text.terminal import cut, pad, printable, width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.text.command_line import Parsed

_COLORS = {
    "running": "32",
    "starting": "32",
    "stopping": "33",
    "queued": "36",
    "held": "35",
    "done": "2",
    "failed": "31",
    "lost": "31",
    "cancelled": "33",
}
_LAST_AT_LEAST = 16  # width of the last column, if other columns can shrink for it
_OTHERS_AT_LEAST = 8


def wants_color() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def print_json(**content: Any) -> None:
    print(as_json(**content))


def as_json(**content: Any) -> str:
    import json

    from stoker.text.json_schema import JSON_SCHEMA

    return json.dumps({"schema": JSON_SCHEMA, **content})


def report_change(text: str, brief: str | None = None) -> None:
    """Print what a command has changed.

    If writing to stdout fails, print the text (or the shorter `brief`) on stderr and raise
    OutputFailed: the change was made, and a script that repeats the command would make it twice.
    """
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        notice(text if brief is None else brief)
        raise OutputFailed(
            f"the change was made, but writing to stdout failed: {reason}",
            "do not repeat the command",
        ) from None


def notice(text: str, end: str = "\n") -> None:
    """Print on stderr. A failure (full disk, closed terminal) is ignored, so that jobs go on."""
    try:
        sys.stderr.write(text + end)
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def print_change(parsed: Parsed, text: str, **content: object) -> int:
    """Print what a command changed, as text or as JSON with `--json`. Returns the exit code 0."""
    report_change(as_json(**content) if parsed["json"] else text)
    return 0


def columns() -> int | None:
    """The width of the terminal; None if stdout is not a terminal: a pipe gets full lines."""
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size().columns
    except OSError:
        return 80


def table(header: tuple[str, ...], rows: Iterable[tuple[object, ...]], *, state: int = -1) -> str:
    """Render aligned columns, cut to the width of the terminal. Column `state` is colored."""
    cells = [tuple(printable(str(cell)) for cell in row) for row in rows]
    widths = [max(width(line[i]) for line in (header, *cells)) for i in range(len(header))]
    limit, color = columns(), wants_color()
    if limit is not None:
        _shrink(widths, limit, state)
    lines = []
    for number, line in enumerate((header, *cells)):
        padded = [pad(cut(cell, widths[i]), widths[i]) for i, cell in enumerate(line[:-1])]
        text = "  ".join((*padded, line[-1])).rstrip()
        if limit is not None:
            text = cut(text, limit)
        if color and number == 0:
            text = f"\x1b[1m{text}\x1b[0m"
        elif color and state >= 0 and line[state] in _COLORS:
            start = sum(len(cell) + 2 for cell in padded[:state])
            end = start + len(line[state])
            text = f"{text[:start]}\x1b[{_COLORS[line[state]]}m{text[start:end]}\x1b[0m{text[end:]}"
        lines.append(text)
    return "\n".join(lines)


def _shrink(widths: list[int], limit: int, state: int) -> None:
    """Narrow long columns so that the last one, the most useful, keeps a minimum width."""
    others = [i for i in range(len(widths) - 1) if i != state]
    room = limit - sum(width + 2 for width in widths[:-1])
    while others and room < min(widths[-1], _LAST_AT_LEAST):
        longest = max(others, key=widths.__getitem__)
        if widths[longest] <= _OTHERS_AT_LEAST:
            break
        widths[longest] -= 1
        room += 1


class ProgressLine:
    """A line on stderr that is redrawn on a terminal; prints nothing elsewhere."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr is not None and sys.stderr.isatty()
        self._is_empty = True

    def write(self, text: str) -> None:
        if self._is_shown:
            notice(f"\r\x1b[K{text}", end="")
            self._is_empty = not text

    def clear(self) -> None:
        if not self._is_empty:
            self.write("")
