"""Read the curves of a large selection in the background, before they are asked for.

A sweep's screen shows the best 50 curves at once. To group all trials, the others must be read too:
two million reports take some seconds. A thread reads them when the screen is opened, and rests
after each job, so that other requests are answered meanwhile.
"""

from __future__ import annotations

import threading
import time

from stoker.client.curve_cache import CurveCache
from stoker.client.reports import Source
from stoker.client.run_selection import Selection

_FEWEST = 100  # fewer curves are read fast enough when they are asked for
_DELAY = 2.0  # seconds until it begins: a screen that opens asks for more at the same time
_REST = 0.5  # seconds of rest for each second of work
_LARGEST_SHARE = 0.5  # of the cache
_POINT_BYTES = 24


class CurvePrefetch:
    """One thread at a time; a request while it works is ignored."""

    def __init__(self, cache: CurveCache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def start(self, selection: Selection, names: list[str]) -> bool:
        """Begin to read the curves of the finished runs that the cache does not have.

        Returns False if there are few of them, if they would fill the cache, or if another
        selection is being read.
        """
        missing: list[tuple[Source, list[str]]] = []
        size = 0
        for run in selection.runs:
            source = run.reported.source
            own = [name for name in names if name in run.summary]
            if source is None or not source.is_finished or not own:
                continue
            if not self._cache.has(source, own):
                missing.append((source, own))
                size += sum(run.summary[name].n * _POINT_BYTES for name in own)
        if len(missing) < _FEWEST or size > self._cache.max_bytes * _LARGEST_SHARE:
            return False
        with self._lock:
            if self._stop.is_set() or (self._thread is not None and self._thread.is_alive()):
                return False
            self._thread = threading.Thread(
                target=self._read, args=(missing,), name="curves", daemon=True
            )
            self._thread.start()
        return True

    def _read(self, missing: list[tuple[Source, list[str]]]) -> None:
        if self._stop.wait(_DELAY):
            return
        for source, names in missing:
            begin = time.monotonic()
            self._cache.lines(source, names)
            if self._stop.wait((time.monotonic() - begin) * _REST):
                return

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
