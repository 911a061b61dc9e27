"""When an interactive job was not used for so long that its GPUs are released.

It is used while something is typed or printed, and while its processes use at least `BUSY_CORES` of
a CPU core: a training that prints nothing goes on, a notebook without a running cell does not.
"""

from __future__ import annotations

BUSY_CORES = 0.05
_WARNING_SECONDS = 300.0  # before the end, or half of a shorter limit
_CHECKS = 8  # of the CPU time, per limit
_LONGEST_CHECK_SECONDS = 30.0


class IdleLimit:
    """Measures unused time. Times are monotonic; `cpu_seconds` is the sum of all processes."""

    def __init__(self, limit: float, now: float) -> None:
        self._limit = limit  # 0: none
        self._used_at = now
        self._warned = False
        self._checked = (now, 0.0)

    @property
    def warning_seconds(self) -> float:
        """How long before the end the user is warned."""
        return min(_WARNING_SECONDS, self._limit / 2)

    def use(self, now: float) -> None:
        """Something was typed or printed."""
        self._used_at = now
        self._warned = False

    def check(self, now: float, cpu_seconds: float) -> None:
        """Count the time since the last check as used if processes were busy."""
        before, seconds = self._checked
        if now > before and cpu_seconds - seconds >= BUSY_CORES * (now - before):
            self.use(now)
        self._checked = (now, cpu_seconds)

    def is_over(self, now: float) -> bool:
        return self._limit > 0 and now >= self._used_at + self._limit

    def must_warn(self, now: float) -> bool:
        """Whether the warning is due; True only once until the job is used again."""
        due = self._used_at + self._limit - self.warning_seconds
        if self._limit <= 0 or self._warned or now < due:
            return False
        self._warned = True
        return True

    def seconds_to_check(self) -> float | None:
        """The time between two checks; None without a limit."""
        if self._limit <= 0:
            return None
        return min(_LONGEST_CHECK_SECONDS, self._limit / _CHECKS)
