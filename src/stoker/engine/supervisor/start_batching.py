"""Delays the reports of starts, so that a short job causes only one transaction."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.engine.model import Outcome
from stoker.engine.supervisor.messages import AttemptStarted

_DELAY_SECONDS = 0.02


class StartBatch:
    """Starts that were not reported yet: sent together with the end, or after a short delay."""

    def __init__(self) -> None:
        self._waiting: dict[int, AttemptStarted] = {}  # oldest first
        self.due_at: float | None = None  # monotonic

    def add(self, started: AttemptStarted) -> None:
        self._waiting[started.attempt] = started
        if self.due_at is None:
            self.due_at = started.mono + _DELAY_SECONDS

    def take(self, ended: Iterable[Outcome]) -> list[AttemptStarted]:
        """Remove and return the starts of attempts that have ended."""
        if not self._waiting:
            return []
        taken = [self._waiting.pop(outcome.attempt, None) for outcome in ended]
        if not self._waiting:
            self.due_at = None
        return [started for started in taken if started is not None]

    def due(self, now: float) -> list[AttemptStarted]:
        """Remove and return all starts if the oldest is due; they share one transaction."""
        return self.all() if self.due_at is not None and self.due_at <= now else []

    def all(self) -> list[AttemptStarted]:
        started = list(self._waiting.values())
        self._waiting.clear()
        self.due_at = None
        return started
