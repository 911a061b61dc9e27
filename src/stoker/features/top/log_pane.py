"""The log of the selected job, as far as it was read: the lines of `client/live/log_view.py`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import RichLog

from stoker.client.live.log_view import Wanted
from stoker.features.top.glyphs import Glyphs
from stoker.text.logs.log_lines import Span
from stoker.text.plurals import plural

_TAIL = 16 << 10  # bytes to begin with: more than a screen
_MAX_LINES = 20_000
_NEAR_ROWS = 200
_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_ATTRIBUTES = {
    "bold": "bold",
    "faint": "dim",
    "slant": "italic",
    "under": "underline",
    "inverse": "reverse",
}


class LogPane(RichLog, inherit_bindings=False):
    """Follows the log until the user scrolls up."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(keys, f"pan('{where}')", show=False)
        for keys, where in (
            ("up,k", "up"), ("down,j", "down"), ("pageup", "pageup"), ("pagedown", "pagedown"),
            ("home", "home"), ("end", "end"),
        )
    ]  # fmt: skip

    def __init__(self, glyphs: Glyphs, id: str) -> None:
        super().__init__(wrap=True, min_width=1, auto_scroll=False, id=id)
        self._glyphs = glyphs
        self._notes: Sequence[str] = ()
        self.error: str | None = None
        self.begin(None)

    def begin(self, job: int | None) -> None:
        """Forget everything, and show the log of this job from now on."""
        self.job = job
        self.attempt: int | None = None  # None: nothing was read yet; 0: it has not started
        self.is_over = False
        self.is_following = True
        self._start = self._to = 0
        self._starts: list[int] = []  # for each line its offset in the file, its text,
        self.texts: list[Text] = []
        self._rows: list[int] = []  # and the number of its first row: long lines are wrapped
        self.clear()

    def wanted(self) -> Wanted:
        """What to read next: the end of the log, or what follows the known part."""
        if self.attempt is None:
            return Wanted(tail=_TAIL)
        return Wanted(begin=self._to, start=self._start)

    def earlier(self) -> Wanted | None:
        """The part before the known one, if it may soon be visible."""
        is_near = not self.is_following and self.scroll_y < _NEAR_ROWS
        return Wanted(end=self._starts[0]) if is_near and self._starts and self._starts[0] else None

    def take(self, answer: dict[str, Any]) -> bool:
        """Add an answer to `wanted`. Returns whether more can be read at once."""
        is_long = self.is_following and len(self.texts) > _MAX_LINES
        if self.attempt is None:
            self.attempt = answer["attempt"]
        elif answer["attempt"] != self.attempt or answer["size"] < self._to or is_long:
            self.begin(self.job)  # another file, or too much of this one: read its end
            return True
        kept = bisect_left(self._starts, answer["from"])
        if kept < len(self._starts):  # these lines have changed, such as a progress bar
            del self.lines[self._rows[kept] if kept < len(self._rows) else len(self.lines) :]
            del self._starts[kept:], self.texts[kept:], self._rows[kept:]
            self.notify_style_update()  # clears its cache of rows
        if answer["lines"]:
            if self._notes:
                self.say(())
            self._starts += [line["at"] for line in answer["lines"]]
            self.texts += [_text(line["spans"]) for line in answer["lines"]]
            self._write()
        self._start, self._to = answer["start"], answer["to"]
        self.is_over = answer["is_over"]
        return bool(answer["to"] < answer["size"])

    def take_earlier(self, answer: dict[str, Any]) -> None:
        self._starts[:0] = [line["at"] for line in answer["lines"]]
        self.texts[:0] = [_text(line["spans"]) for line in answer["lines"]]
        self._wrap(len(answer["lines"]))

    def say(self, notes: Sequence[str]) -> None:
        """Show these sentences in place of a log; nothing shows the log again."""
        if notes != self._notes:
            self._notes = notes
            self._wrap()

    def _wrap(self, added: int = 0) -> None:
        """Write everything again, after `added` new lines at the start or for another width."""
        top = bisect_right(self._rows, self.scroll_y) - 1 + added
        within = self.scroll_y - self._rows[top - added] if top - added >= 0 else 0
        self.clear()
        self._rows.clear()
        self._write()
        if not self.is_following and 0 <= top < len(self._rows):
            self.scroll_to(y=self._rows[top] + within, animate=False, immediate=True, force=True)

    def _write(self) -> None:
        if not self.size.width:
            return  # not visible; the resize event comes first
        for note in self._notes:
            self.write(Text(note, "dim"), scroll_end=False)
        for text in [] if self._notes else self.texts[len(self._rows) :]:
            self._rows.append(len(self.lines))
            self.write(text, scroll_end=False)
        if self.is_following:
            self.scroll_end(animate=False, immediate=True, force=True)
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        event.prevent_default()
        self._wrap()

    @property
    def below(self) -> int:
        """The number of lines below the last visible one."""
        end = round(self.scroll_y) + self.scrollable_content_region.height
        return 0 if self.is_following else len(self._rows) - bisect_left(self._rows, end)

    def action_pan(self, where: str) -> None:
        page = max(1, self.scrollable_content_region.height - 1)
        step = {"up": -1, "down": 1, "pageup": -page, "pagedown": page}.get(where, 0)
        y = {"home": 0, "end": self.max_scroll_y}.get(where, round(self.scroll_y) + step)
        self.scroll_to(y=y, animate=False, immediate=True, force=True)
        self.is_following = max(0, y) >= self.max_scroll_y

    def title(self, job: int) -> str:
        if self._notes or not self.attempt:
            return f"Log of job {job}"
        state = "" if self.is_over else f"{self._glyphs.dot}live"
        if not self.is_following:
            state = f"{self._glyphs.dot}{plural(self.below, 'line')} below, End follows"
        return f"Log of job {job}{state}"


def _text(spans: Sequence[Span]) -> Text:
    """A rendered line of a log (text/logs/log_lines.py); its text is already safe to show."""
    text = Text(tab_size=8)
    for span in spans:
        text.append(span["text"], _style(span))
    return text


def _style(span: Span) -> str:
    words = []
    for name in span.get("classes", "").split():
        if name in _ATTRIBUTES:
            words.append(_ATTRIBUTES[name])
        else:
            words += ["on"] * (name[0] == "g") + [_color(int(name[1:]))]
    for key, before in (("color", ""), ("background", "on ")):
        if key in span:  # rgb(r g b)
            words.append(f"{before}{span[key].replace(' ', ',')}")
    return " ".join(words)


def _color(number: int) -> str:
    return f"bright_{_NAMES[number - 8]}" if number >= 8 else _NAMES[number]
