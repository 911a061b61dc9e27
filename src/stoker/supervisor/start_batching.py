"""Beginnings, told late: a job that ends at once is recorded once."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.core.model import Outcome
from stoker.supervisor.messages import AttemptStarted

_DELAY_SECONDS = 0.02


class StartBatch:
    """Nobody waits for news of a beginning, so it travels with its own end or a little later."""

    def __init__(self) -> None:
        self._waiting: dict[int, AttemptStarted] = {}  # oldest first
        self.due_at: float | None = None  # monotonic

    def add(self, begun: AttemptStarted) -> None:
        self._waiting[begun.attempt] = begun
        if self.due_at is None:
            self.due_at = begun.mono + _DELAY_SECONDS

    def of(self, ended: Iterable[Outcome]) -> list[AttemptStarted]:
        """Take the beginnings of what has ended."""
        if not self._waiting:
            return []
        taken = [self._waiting.pop(outcome.attempt, None) for outcome in ended]
        if not self._waiting:
            self.due_at = None
        return [begun for begun in taken if begun is not None]

    def due(self, now: float) -> list[AttemptStarted]:
        """Take all when the oldest has waited long enough; together they cost one transaction."""
        return self.all() if self.due_at is not None and self.due_at <= now else []

    def all(self) -> list[AttemptStarted]:
        begun = list(self._waiting.values())
        self._waiting.clear()
        self.due_at = None
        return begun
