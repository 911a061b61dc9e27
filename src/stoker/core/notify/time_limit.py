"""How long before its time limit a job is announced: a tenth of the limit, 1 to 30 minutes."""

from __future__ import annotations

# The store computes the same in SQL (store/notify_outbox.py).
SHARE = 0.1
LEAST_SECONDS = 60.0
MOST_SECONDS = 1800.0
MIN_LIMIT = 120.0  # shorter limits are not announced: the message would come with the end


def warning_seconds(time_limit: float) -> float | None:
    """Seconds before the limit; None if the limit is too short.

    >>> warning_seconds(60), warning_seconds(300), warning_seconds(7200), warning_seconds(1e6)
    (None, 60.0, 720.0, 1800.0)
    """
    if time_limit < MIN_LIMIT:
        return None
    return min(max(time_limit * SHARE, LEAST_SECONDS), MOST_SECONDS)
