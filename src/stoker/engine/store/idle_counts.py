"""How often, and for how long, a GPU was idle although a job that waited could have run on it.

The daemon checks this twice a minute (engine/daemon/idle_check.py). Both numbers stay 0 unless
Stoker has a defect; `stoker doctor` and `stoker gpus --json` show them.
"""

from __future__ import annotations

from stoker.engine.store.database import Database
from stoker.engine.store.meta import get_meta, set_meta
from stoker.record import Record

_KEY = "idle_with_runnable_job"


class IdleCount(Record):
    """`seconds` is an upper bound: the idle time may have begun after the last check."""

    occasions: int = 0
    seconds: float = 0.0
    last_at: float | None = None  # wall clock

    def as_json(self) -> dict[str, object]:
        return {"occasions": self.occasions, "seconds": self.seconds}


def idle_count(db: Database) -> IdleCount:
    """Return the count since the queue was created."""
    words = str(get_meta(db, _KEY) or "").split()
    if len(words) != 3:
        return IdleCount()
    return IdleCount(int(words[0]), float(words[1]), float(words[2]))


def add_idle_time(db: Database, seconds: float, now: float, *, is_new: bool) -> None:
    """Add idle time; `is_new`: the check before this one found no idle GPU."""
    known = idle_count(db)
    total = round(known.seconds + seconds, 3)
    set_meta(db, _KEY, f"{known.occasions + is_new} {total} {now}")
