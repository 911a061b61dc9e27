"""The notification at the end of `stoker wait --notify`."""

from __future__ import annotations

import sys
import time

from stoker.cli.output import notice
from stoker.features.notify.collect import sender
from stoker.features.notify.message import Notice, compose
from stoker.features.notify.place_kinds import kind_of
from stoker.features.notify.places_file import load_place
from stoker.features.notify.rules import DESKTOP
from stoker.features.notify.send_process import send_now
from stoker.features.notify.senders.desktop import is_available
from stoker.text.terminal import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.client.queue import Queue

_MOST_CHARACTERS = 200  # of a text that the terminal shows


class WaitNotification:
    """Notifies a place, by default the desktop; without a desktop session, the terminal."""

    def __init__(self, place: str) -> None:
        """`place`: "" for the default. Raises UsageError for an unknown one."""
        uses_terminal = not place and not is_available()
        self._place = place or DESKTOP
        self._url = None if uses_terminal else load_place(self._place)

    def send(self, text: str, notices: list[Notice] | None = None) -> None:
        """Send the text, or a message about these jobs. A failure is only a warning."""
        who = sender()
        content = compose(notices or [Notice("wait", None, {"title": text, "state": ""})], who)
        if not notices:
            content |= {"subject": text, "events": [{"when": "wait", "job": None, "text": text}]}
        if self._url is None:
            _notify_terminal(content["subject"])
            return
        content |= {"at": time.time(), "id": f"stoker-{who.host}-wait-{time.time_ns():x}"}
        result = send_now(self._url, content)
        if result.error is not None:
            notice(f"warning: {self._place} was not notified: {printable(result.error)}")
            if kind_of(self._url) == DESKTOP:
                _notify_terminal(content["subject"])


def _notify_terminal(text: str) -> None:
    """Ring the bell, and show the text where the terminal knows OSC 9."""
    if not sys.stderr.isatty():
        notice("warning: there is no desktop session and no terminal to notify")
        return
    notice(f"\x1b]9;{printable(text)[:_MOST_CHARACTERS]}\x1b\\\a", end="")


def notices_of(queue: Queue, ids: list[int]) -> list[Notice]:
    """What to say about finished jobs."""
    from stoker.features.notify.collect import Collector

    collector = Collector(queue.db, queue.settings)
    return [Notice("end", id, collector.job_facts(id)) for id in ids]
