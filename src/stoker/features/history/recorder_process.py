"""Runs the usage recorder while there is something to sample (see usage_recorder.py)."""

from __future__ import annotations

import time

from stoker.engine.daemon.helper_process import HelperProcess
from stoker.engine.daemon.loop import Loop
from stoker.engine.devices.sample_lines import encode
from stoker.engine.gpus.sample import Sample
from stoker.features.history.gpu_activity_feed import GpuActivityFeed
from stoker.settings import Settings

# How often the recorder gets a GPU sample; it averages several.
_SEND_SECONDS = 1.0


class UsageRecorderProcess(HelperProcess):
    def __init__(self, settings: Settings, feed: GpuActivityFeed) -> None:
        super().__init__("stoker.features.history.usage_recorder", "the usage recorder", settings)
        # Shorter jobs get no chart: the process would cost more than the job.
        self._min_seconds = settings.trace_seconds
        self._created_at = time.monotonic()
        self._now = self._created_at
        self._due_at: float | None = None
        self._send_at = 0.0
        self._sent: Sample | None = None
        self._feed = feed
        self._known_pid = 0  # of the recorder that has the present state of the GPUs

    def is_needed(self) -> bool:
        return self._due_at is not None and self._now >= self._due_at

    def next_deadline(self) -> float | None:
        if self.is_running or self._is_wanted:
            return super().next_deadline()
        return self._due_at

    def update(self, loop: Loop, sample: Sample | None, now: float) -> str | None:
        """Send what is new of the GPUs; called in every tick. Returns an error text, or None."""
        self._now = now
        self._due_at = self._find_due(loop)
        is_due = self.is_running and now >= self._send_at
        if is_due and sample is not None and sample is not self._sent:
            self._sent, self._send_at = sample, now + _SEND_SECONDS
            self.send(encode(sample))
        error = self.check(now, not self.is_running)
        if self.is_running:
            self._send_activities()
        return error

    def _send_activities(self) -> None:
        if self._pid != self._known_pid:
            self._known_pid = self._pid
            self._feed.repeat()
        lines = self._feed.lines()
        while lines and self.send(lines[0]):
            lines.popleft()

    def close(self) -> None:
        """Close its stdin: it records what it got last, and exits."""
        if self.is_running:
            self._send_activities()
        self._close_descriptors()

    def _find_due(self, loop: Loop) -> float | None:
        """When the first job is old enough to be sampled; None if there is none.

        On a host with GPUs, the recorder always runs: it records what they do.
        """
        if not self._min_seconds:
            return None  # disabled
        if loop.gpus.is_monitored or loop.gpus.devices:
            return self._created_at + self._min_seconds
        oldest = next(iter(loop.running.values()), None)  # in the order of their starts
        return None if oldest is None else oldest.started + self._min_seconds
