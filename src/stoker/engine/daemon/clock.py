"""The system clock. Tests and the simulator use their own."""

from __future__ import annotations

import time


class SystemClock:
    """Wall time for times that users see or give; monotonic time (without suspend) for limits."""

    def wall(self) -> float:
        return time.time()

    def mono(self) -> float:
        return time.monotonic()
