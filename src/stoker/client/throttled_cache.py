"""A cache whose entries expire after a multiple of the time that computing them took.

With a factor of 20, computing takes at most about 5 % of one core, however many clients ask and
however large the database is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class ThrottledCache(Generic[T]):
    """Maps keys to computed values; thread-safe."""

    def __init__(
        self,
        factor: float = 20.0,
        min_seconds: float = 0.0,
        max_entries: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._factor = factor
        self._min_seconds = min_seconds
        self._max_entries = max_entries
        self._clock = clock
        self._known: dict[Hashable, tuple[T, float]] = {}  # value, and when it expires
        self._reused: set[Hashable] = set()  # keys whose cached value was returned
        self._computing: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the cached value until it expires, then compute it.

        Threads that ask for a value while another one computes it wait for that one.
        """
        asked = self._clock()
        with self._lock:
            known = self._known.get(key)
            if known is not None and asked < known[1]:
                self._reused.add(key)
                return known[0]
            computing = self._computing.setdefault(key, threading.Lock())
        with computing:
            with self._lock:
                newer = self._known.get(key)
            if newer is not None and newer is not known:
                return newer[0]
            start = self._clock()
            value = compute()
            end = self._clock()
            with self._lock:
                if self._computing.get(key) is computing:  # not invalidated meanwhile
                    del self._computing[key]
                    while len(self._known) >= self._max_entries:
                        self._drop(next(iter(self._known)))
                    self._drop(key)
                    seconds = max(self._min_seconds, (end - start) * self._factor)
                    self._known[key] = value, end + seconds
            return value

    def invalidate(self, key: Hashable) -> None:
        """Compute the value on the next `get`, however recent it is."""
        with self._lock:
            self._drop(key)
            self._computing.pop(key, None)

    def seconds_until_fresh(self) -> float:
        """Seconds until every value that was returned from the cache can be computed again; 0 when
        none was."""
        now = self._clock()
        with self._lock:
            due = [self._known[key][1] - now for key in self._reused]
        return max((max(seconds, 0.001) for seconds in due), default=0.0)

    def _drop(self, key: Hashable) -> None:
        self._known.pop(key, None)
        self._reused.discard(key)
