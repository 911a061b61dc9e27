"""When to restart a dead daemon or runner: at once, then with an exponential backoff.

A process that cannot start now (full disk, no memory) may be able to in an hour, so retries never
stop; once a minute costs nothing.
"""

from __future__ import annotations

_AT_ONCE = 5  # tries without a delay
_MAX_SECONDS = 60.0
_STEADY_SECONDS = 60.0  # a process that ran for this long did not fail at start-up
_START_SECONDS = 5.0  # how long a new process may take to start


class RestartBackoff:
    """
    >>> restarts = RestartBackoff()
    >>> restarts.died(0.0); restarts.is_due(0.0)
    True
    >>> restarts.tried(0.0); restarts.due_at
    5.0
    >>> for at in range(20): restarts.tried(float(at))
    >>> restarts.due_at
    79.0
    >>> restarts.started(80.0); restarts.due_at
    >>> restarts.died(200.0); restarts.due_at
    200.0
    """

    def __init__(self) -> None:
        self.due_at: float | None = None
        self._tries = 0
        self._started_at = 0.0

    def died(self, now: float) -> None:
        """The process died: schedule a restart."""
        if now - self._started_at > _STEADY_SECONDS:
            self._tries = 0
        self.due_at = now + self._pause()

    def is_due(self, now: float) -> bool:
        return self.due_at is not None and self.due_at <= now

    def tried(self, now: float) -> None:
        self._tries += 1
        self.due_at = now + max(_START_SECONDS, self._pause())

    def started(self, now: float) -> None:
        self._started_at, self.due_at = now, None

    def cancel(self) -> None:
        self.due_at = None

    def _pause(self) -> float:
        more = self._tries - _AT_ONCE
        return 0.0 if more < 0 else float(min(2.0 ** min(more, 10), _MAX_SECONDS))
