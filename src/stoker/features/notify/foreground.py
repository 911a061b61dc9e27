"""Notifications that do not start in the daemon: of `stoker wait --notify` and `stoker run`.

When a run ends, its messages move to the outbox of the queue. There, the daemon's notifier sends
them; without a daemon, a notifier that exits when it is done.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from stoker.cli.output import notice
from stoker.client.queue import Queue
from stoker.engine.daemon.start import wake_daemon
from stoker.engine.store.database import Database, open_database
from stoker.engine.store.job_queries import JobRow
from stoker.engine.supervisor.logs import run_log_path
from stoker.features.notify import store as notify_outbox
from stoker.features.notify.collect import Collector, sender
from stoker.features.notify.message import Notice, compose
from stoker.features.notify.notify_settings import NotifySettings
from stoker.features.notify.place_kinds import kind_of
from stoker.features.notify.places_file import load_place
from stoker.features.notify.rules import DESKTOP
from stoker.features.notify.send_process import send_now
from stoker.features.notify.senders.desktop import is_available
from stoker.settings import Settings, prepare_state_dir
from stoker.text.terminal import printable


def hand_over(db: Database, folder: str, settings: Settings) -> int:
    """Move what the jobs of a run have to notify to the queue; returns the number of messages."""
    now = time.time()
    if notify_outbox.next_due(db, now) is None:
        return 0
    # All in one message for each place: the run is over. Its jobs are not in the web UI.
    notify = (settings.notify or NotifySettings())._replace(interval=0.0, link="")
    with db.transaction():
        Collector(db, settings._replace(notify=notify), lambda row: _log(folder, row)).collect(now)
    messages = notify_outbox.waiting(db)
    prepare_state_dir(settings)
    queue = open_database(settings.state_dir)
    try:
        with queue.transaction():
            for message in messages:
                notify_outbox.add_message(queue, message.place, message.content, now)
    finally:
        queue.close()
    if messages and not wake_daemon(settings.state_dir):
        _start_notifier(settings.state_dir)
    return len(messages)


def _log(folder: str, row: JobRow) -> str | None:
    path = row.stdout or run_log_path(folder, row.id, row.attempts)
    return path if os.path.exists(path) else None


def _start_notifier(folder: str) -> None:
    """Start a notifier that belongs to no daemon."""
    subprocess.Popen(
        [sys.executable, "-P", "-m", "stoker.features.notify.notifier", "0"],
        env={**os.environ, "STOKER_STATE_DIR": folder},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


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
