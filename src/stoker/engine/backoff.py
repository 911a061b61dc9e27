"""Exponential backoff: how long to wait before a failed process is started again."""

from __future__ import annotations

MANY = 5  # consecutive failures after which `is_paused` is true
_MAX_SECONDS = 600.0


class Backoff:
    """Doubles the delay with each consecutive failure. Times are seconds of any one clock.

    >>> backoff = Backoff(1.0)
    >>> backoff.is_due(0.0), backoff.is_paused
    (True, False)
    >>> for now in range(5): backoff.failed(float(now))
    >>> backoff.due_at, backoff.is_paused, backoff.is_due(19.0), backoff.is_due(20.0)
    (20.0, True, False, True)
    >>> for _ in range(20): backoff.failed(0.0)
    >>> backoff.due_at
    600.0
    >>> backoff.succeeded(); backoff.is_paused, backoff.is_due(0.0)
    (False, True)
    """

    def __init__(self, first: float) -> None:
        self._first = first
        self.failures = 0
        self.due_at = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether there were so many consecutive failures that users should be notified."""
        return self.failures >= MANY

    def is_due(self, now: float) -> bool:
        return now >= self.due_at

    def failed(self, now: float) -> None:
        self.failures += 1
        delay = self._first * 2.0 ** min(self.failures - 1, 30)
        self.due_at = now + min(delay, _MAX_SECONDS)

    def succeeded(self) -> None:
        self.failures, self.due_at = 0, 0.0
