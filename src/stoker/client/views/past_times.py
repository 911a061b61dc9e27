"""Times in filters of jobs, as users write them."""

from __future__ import annotations

from stoker.errors import UsageError
from stoker.text.durations import parse_duration

HINT = "write '2026-11-16', '2026-11-16 14:30', '14:30' (today), 'today', 'yesterday' or '2h ago'"


def parse_past_time(text: str, now: float) -> float:
    """Seconds since the epoch of `2026-11-16`, `2026-11-16 14:30`, `14:30`, `today`, `yesterday`
    (their midnight) or `2h ago`, in local time unless the text has a time zone.

    Raises UsageError.
    """
    from datetime import datetime, timedelta

    stripped = text.strip().lower()
    try:
        midnight = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
        if stripped in ("today", "now", "yesterday"):
            days = {"today": 0, "yesterday": 1}.get(stripped)
            return now if days is None else (midnight - timedelta(days=days)).timestamp()
        if stripped.endswith("ago"):
            return now - parse_duration(stripped.removesuffix("ago").replace(" ", ""), "s")
        if stripped.count(":") in (1, 2) and len(stripped) <= 8:
            form = "%H:%M:%S" if stripped.count(":") == 2 else "%H:%M"
            clock = datetime.strptime(stripped, form)
            return midnight.replace(
                hour=clock.hour, minute=clock.minute, second=clock.second
            ).timestamp()
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, UsageError, OverflowError, OSError):
        raise UsageError(f"`{text}` is not a time", HINT) from None
