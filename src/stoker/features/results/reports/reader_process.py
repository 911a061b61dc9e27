"""Runs the report reader while trials end (see features/results/reports/reader.py)."""

from __future__ import annotations

from collections import deque

from stoker.engine.daemon.helper_process import DaemonParts, HelperProcess, News

_MAX_WAITING = 20_000  # ids kept while there is no reader; the oldest are forgotten
_IDS_PER_LINE = 200  # a line has less than 4 KiB


class ReportReaderProcess(HelperProcess):
    """What is lost when the reader or the daemon dies is read later, by the first who asks."""

    def __init__(self, parts: DaemonParts) -> None:
        super().__init__(
            "stoker.features.results.reports.reader", "the report reader", parts.settings
        )
        self._ended: deque[int] = deque(maxlen=_MAX_WAITING)

    def trial_ended(self, job: int) -> None:
        self._ended.append(job)

    def is_needed(self) -> bool:
        return bool(self._ended)

    def tick(self, now: float, news: News) -> str | None:
        """Pass on the trials that ended; called in every tick. Returns an error, or None."""
        error = self.check(now, bool(self._ended) and not self.is_running)
        while self._ended and self.is_running:
            some = [self._ended[place] for place in range(min(len(self._ended), _IDS_PER_LINE))]
            if not self.send(b"%s\n" % b" ".join(b"%d" % id for id in some)):
                break
            for _ in some:
                self._ended.popleft()
        return error
