"""Notifications of `stoker run`: when the run ends, its messages move to the outbox of the queue.

There, the daemon's notifier sends them; without a daemon, a notifier that exits when it is done.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from stoker.engine.daemon.start import wake_daemon
from stoker.engine.store.database import Database, open_database
from stoker.engine.store.job_queries import JobRow
from stoker.engine.supervisor.logs import run_log_path
from stoker.features.notify import store as notify_outbox
from stoker.features.notify.collect import Collector
from stoker.features.notify.notify_settings import NotifySettings
from stoker.settings import Settings, prepare_state_dir


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
