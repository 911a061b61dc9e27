"""The real clock. Tests and the simulator bring their own."""

from __future__ import annotations

import time


class SystemClock:
    """Wall time for what people see and say; monotonic time (without suspend) for all limits."""

    def wall(self) -> float:
        return time.time()

    def mono(self) -> float:
        return time.monotonic()
