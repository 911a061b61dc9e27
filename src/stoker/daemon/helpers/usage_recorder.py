"""Keeps the tracer alive while there is something to sample (see stoker/tracer.py)."""

from __future__ import annotations

import time

from stoker.core.gpus.sample import Sample
from stoker.daemon.helpers.helper_process import HelperProcess
from stoker.daemon.loop import Loop
from stoker.devices.sample_lines import encode
from stoker.settings import Settings

# How often the tracer hears of the cards; it makes one reading of several.
_TELL_SECONDS = 1.0


class UsageRecorderProcess(HelperProcess):
    def __init__(self, settings: Settings) -> None:
        super().__init__("stoker.usage.usage_recorder", "the tracer", settings)
        # Jobs that are shorter need no chart, and a process for each would cost more than they do.
        self._ripe_seconds = settings.trace_seconds
        self._begun = time.monotonic()
        self._now = self._begun
        self._ripe_at: float | None = None
        self._tell_at = 0.0
        self._told: Sample | None = None

    def is_needed(self) -> bool:
        return self._ripe_at is not None and self._now >= self._ripe_at

    def next_deadline(self) -> float | None:
        if self.is_there or self._is_wanted:
            return super().next_deadline()
        return self._ripe_at

    def follow(self, loop: Loop, seen: Sample | None, now: float) -> str | None:
        """Called in every turn with the newest sample of the cards."""
        self._now = now
        self._ripe_at = self._find_ripe(loop)
        if self.is_there and seen is not self._told and now >= self._tell_at and seen is not None:
            self._told, self._tell_at = seen, now + _TELL_SECONDS
            self.say(encode(seen))
        return self.look(now, not self.is_there)

    def _find_ripe(self, loop: Loop) -> float | None:
        """From when on there is something to sample."""
        if not self._ripe_seconds:
            return None  # switched off
        if loop.gpus.is_monitored:
            return self._begun + self._ripe_seconds
        oldest = next(iter(loop.running.values()), None)  # they stand in the order of their starts
        return None if oldest is None else oldest.started + self._ripe_seconds
