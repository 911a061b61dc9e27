"""Points in time as people type them."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from stoker.core.formats.durations import parse_duration
from stoker.errors import Error, UsageError


def parse_time(text: str, now: float | None = None) -> float:
    """`+2h`, `now+30m`, `14:30` (the next one), `2026-12-24T18:00`, `2026-12-24 18:00`."""
    here = datetime.fromtimestamp(time.time() if now is None else now)
    relative = text.removeprefix("now")
    try:
        at = _parse(text, relative, here)
        datetime.fromtimestamp(at)  # nobody could show a time that this refuses
        return at
    except (ValueError, Error, OverflowError, OSError):
        raise UsageError(
            f"`{text}` is not a time", "write 14:30, +2h or 2026-12-24T18:00"
        ) from None


def _parse(text: str, relative: str, here: datetime) -> float:
    if relative.startswith("+"):
        return here.timestamp() + parse_duration(relative[1:], "s")
    if text.count(":") in (1, 2) and len(text) <= 8:
        clock = datetime.strptime(text, "%H:%M:%S" if text.count(":") == 2 else "%H:%M")
        at = here.replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0)
        return (at if at > here else at + timedelta(days=1)).timestamp()
    return datetime.fromisoformat(text).timestamp()
