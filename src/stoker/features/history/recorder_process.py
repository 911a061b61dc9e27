"""Runs the usage recorder while there is something to sample (see usage_recorder.py)."""

from __future__ import annotations

import time

from stoker.engine.daemon.helper_process import DaemonParts, HelperProcess, News
from stoker.engine.devices.sample_lines import encode
from stoker.engine.gpus.sample import Sample
from stoker.features.history.gpu_activity_feed import GpuActivityFeed

# How often the recorder gets a GPU sample; it averages several.
_SEND_SECONDS = 1.0


class UsageRecorderProcess(HelperProcess):
    def __init__(self, parts: DaemonParts) -> None:
        super().__init__(
            "stoker.features.history.usage_recorder", "the usage recorder", parts.settings
        )
        self._loop = parts.loop
        self._driver_monitor = parts.driver_monitor
        # Shorter jobs get no chart: the process would cost more than the job.
        self._min_seconds = parts.settings.trace_seconds
        self._created_at = time.monotonic()
        self._now = self._created_at
        self._due_at: float | None = None
        self._send_at = 0.0
        self._sent: Sample | None = None
        self._feed = GpuActivityFeed(parts.loop, parts.clock)
        self._known_pid = 0  # of the recorder that has the present state of the GPUs

    def is_needed(self) -> bool:
        return self._due_at is not None and self._now >= self._due_at

    def next_deadline(self) -> float | None:
        is_active = self.is_running or self._is_wanted
        due = super().next_deadline() if is_active else self._due_at
        times = (due, self._feed.next_deadline())
        return min((at for at in times if at is not None), default=None)

    def ordered(self, devices: tuple[int, ...]) -> None:
        self._feed.started(devices)

    def tick(self, now: float, news: News) -> str | None:
        """Send what is new of the GPUs; called in every tick. Returns an error text, or None."""
        self._feed.update(now)
        sample = self._driver_monitor.newest
        self._now = now
        self._due_at = self._find_due()
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

    def _find_due(self) -> float | None:
        """When the first job is old enough to be sampled; None if there is none.

        On a host with GPUs, the recorder always runs: it records what they do.
        """
        if not self._min_seconds:
            return None  # disabled
        if self._loop.gpus.is_monitored or self._loop.gpus.devices:
            return self._created_at + self._min_seconds
        oldest = next(iter(self._loop.running.values()), None)  # in the order of their starts
        return None if oldest is None else oldest.started + self._min_seconds
