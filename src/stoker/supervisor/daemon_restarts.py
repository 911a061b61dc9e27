"""When to start another daemon or runner: at once, then less and less often while they die.

One that cannot live now (a full disk, no memory) may be able to in an hour. Trying once a minute
costs nothing, and needs no user.
"""

from __future__ import annotations

_AT_ONCE = 5  # tries without a pause
_LONGEST_SECONDS = 60.0
_STEADY_SECONDS = 60.0  # who lived that long did not die of being started
_COMING_SECONDS = 5.0  # how long a new one may take to come


class Restarts:
    """
    >>> restarts = Restarts()
    >>> restarts.left(0.0); restarts.is_due(0.0)
    True
    >>> restarts.tried(0.0); restarts.due_at
    5.0
    >>> for at in range(20): restarts.tried(float(at))
    >>> restarts.due_at
    79.0
    >>> restarts.came(80.0); restarts.due_at
    >>> restarts.left(200.0); restarts.due_at
    200.0
    """

    def __init__(self) -> None:
        self.due_at: float | None = None
        self._tries = 0
        self._came_at = 0.0

    def left(self, now: float) -> None:
        """It died."""
        if now - self._came_at > _STEADY_SECONDS:
            self._tries = 0
        self.due_at = now + self._pause()

    def is_due(self, now: float) -> bool:
        return self.due_at is not None and self.due_at <= now

    def tried(self, now: float) -> None:
        self._tries += 1
        self.due_at = now + max(_COMING_SECONDS, self._pause())

    def came(self, now: float) -> None:
        self._came_at, self.due_at = now, None

    def give_up(self) -> None:
        self.due_at = None

    def _pause(self) -> float:
        more = self._tries - _AT_ONCE
        return 0.0 if more < 0 else float(min(2.0 ** min(more, 10), _LONGEST_SECONDS))
