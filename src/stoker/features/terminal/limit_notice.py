"""Warn at the terminal of an interactive job before its time limit."""

from __future__ import annotations

from collections.abc import Callable

from stoker.text.durations import format_duration

_WARN_SECONDS = (300.0, 60.0)
_SOON = 2.0  # seconds; timers may be a little early


class LimitNotice:
    """`seconds_left` reads how long the job may still run, because a user may change the limit."""

    def __init__(self, seconds_left: Callable[[], float | None]) -> None:
        self._seconds_left = seconds_left
        self._shown_for = float("inf")  # the smallest threshold that was announced

    def next(self) -> tuple[str | None, float | None]:
        """A warning that is due, and the seconds until the next one can be due."""
        left = self._seconds_left()
        if left is None:
            return None, None
        due = [one for one in _WARN_SECONDS if left <= one + _SOON]
        text = None
        if due and min(due) < self._shown_for:
            self._shown_for = min(due)
            text = f"the time limit ends this job in {format_duration(max(0.0, round(left)))}"
        later = [left - one for one in _WARN_SECONDS if one not in due]
        return text, min(later) if later else None
