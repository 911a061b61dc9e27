"""Values that cost something, kept until it is worth to find them anew.

A value that took a while is found again only after a multiple of that while; so however many
look, and however large the store, looking takes at most that share of one core.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class ThrottledCache(Generic[T]):
    """By key; safe for several threads."""

    def __init__(
        self,
        factor: float = 20.0,
        least: float = 0.0,
        most: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._factor = factor
        self._least = least
        self._most = most
        self._clock = clock
        self._known: dict[Hashable, tuple[T, float]] = {}  # and when it is due
        self._stale: set[Hashable] = set()
        self._lock = threading.Lock()

    def get(self, key: Hashable, find: Callable[[], T]) -> T:
        start = self._clock()
        with self._lock:
            known = self._known.get(key)
            if known is not None and start < known[1]:
                self._stale.add(key)
                return known[0]
        value = find()
        end = self._clock()
        with self._lock:
            while len(self._known) >= self._most:
                self._forget(next(iter(self._known)))
            self._forget(key)
            self._known[key] = value, end + max(self._least, (end - start) * self._factor)
        return value

    def forget(self, key: Hashable) -> None:
        """Find it anew the next time, whatever it costs."""
        with self._lock:
            self._forget(key)

    def late(self) -> float:
        """Seconds until all that was given out old can be found anew; 0: nothing was."""
        now = self._clock()
        with self._lock:
            due = [self._known[key][1] - now for key in self._stale]
        return max((max(seconds, 0.001) for seconds in due), default=0.0)

    def _forget(self, key: Hashable) -> None:
        self._known.pop(key, None)
        self._stale.discard(key)
