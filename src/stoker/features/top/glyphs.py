"""Characters and colors, for every kind of terminal."""

from __future__ import annotations

from rich.text import Text

from stoker.record import Record
from stoker.text.terminal import printable

Span = tuple[str, str]  # text and style, in the words of rich: "bold green"

# Colors are those of the terminal: 16 of them exist everywhere, on light and dark backgrounds.
STATE_STYLES = {
    "running": "green", "starting": "green", "stopping": "yellow", "submitted": "cyan",
    "queued": "cyan", "held": "magenta", "done": "dim", "failed": "red", "lost": "red",
    "cancelled": "yellow", "active": "green", "paused": "yellow", "finished": "dim",
    "stopped": "yellow", "busy": "green", "taken": "yellow",
}  # fmt: skip


class Glyphs(Record):
    """The characters beside text; `ASCII` for terminals without Unicode."""

    ellipsis: str = "…"
    full: str = "█"
    empty: str = "░"
    dot: str = " · "
    is_ascii: bool = False

    def bar(self, part: float, columns: int) -> str:
        """A bar of which a part from 0 to 1 is filled; little is more than nothing."""
        full = round(max(0.0, min(1.0, part)) * columns) or int(part >= 0.02)
        return self.full * full + self.empty * (columns - full)

    def line(self, text: str, style: str = "", *, is_right: bool = False) -> Text:
        """A text on one line, cut where it does not fit, and never parsed as markup."""
        return Text(
            text,
            style,
            no_wrap=True,
            overflow="crop" if self.is_ascii else "ellipsis",
            justify="right" if is_right else "left",
            end="",
        )


UNICODE = Glyphs()
ASCII = Glyphs("~", "#", ".", " - ", True)


def clean(text: object) -> str:
    """A text of a user on one line, with control characters as escapes."""
    return printable(str(text))
