"""Runs the notifier while there are notifications to send (see features/notify/notifier.py)."""

from __future__ import annotations

import time

from stoker.engine.daemon.helper_process import DaemonParts, HelperProcess, News
from stoker.features.notify import store as notify_outbox

# Jobs that started are looked at so much later: a time limit is announced a minute before it ends.
_STARTS_SECONDS = 10.0


class NotifierProcess(HelperProcess):
    """Starts the notifier when something is due: events at once, retries and limits later.

    Jobs without notifications cost one short query for each tick in which jobs started or ended.
    """

    def __init__(self, parts: DaemonParts) -> None:
        super().__init__("stoker.features.notify.notifier", "the notifier", parts.settings)
        self._db = parts.db
        self._due_at: float | None = None  # wall clock
        self._check_at: float | None = 0.0  # when to find that out again (monotonic)

    def is_needed(self) -> bool:
        self._check_at = None
        now = time.time()
        self._due_at = notify_outbox.next_due(self._db, now)
        return self._due_at is not None and self._due_at <= now

    def next_deadline(self) -> float | None:
        """When to start the process, or to check whether it is needed (monotonic)."""
        if self.is_running:
            return None  # it sleeps until something is due
        times = [super().next_deadline(), self._check_at]
        if not self._is_wanted and self._due_at is not None:
            times.append(time.monotonic() + max(0.0, self._due_at - time.time()))
        return min((at for at in times if at is not None), default=None)

    def tick(self, now: float, news: News) -> str | None:
        """Start the process if something is due. Returns an error, or None."""
        if self.is_running:
            return self.check(now, False)
        has_changed = news.was_read
        if news.has_events and not has_changed:
            has_changed = notify_outbox.has_events(self._db)
            if self._check_at is None:
                self._check_at = now + _STARTS_SECONDS
        is_due = self._check_at is not None and now >= self._check_at
        is_due = is_due or (self._due_at is not None and self._due_at <= time.time())
        return self.check(now, has_changed or is_due)
