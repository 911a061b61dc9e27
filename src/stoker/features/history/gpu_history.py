"""What each GPU did over a time, for `stoker gpus --history` and the web UI."""

from __future__ import annotations

import time
from typing import Any

from stoker.cli.output import table
from stoker.client.queue import Queue
from stoker.engine.daemon.status import daemon_pid, known_devices
from stoker.engine.store.database import Database
from stoker.engine.supervisor.process_table import start_time
from stoker.features.history import store_gpus as gpu_history
from stoker.features.history.gpu_time import GpuTime, Interval, add_up
from stoker.record import Record
from stoker.settings import Settings
from stoker.text.durations import format_duration

# The last interval of the running daemon lasts until now; it is saved this often at least.
_SAVED_SECONDS = 60.0
NOT_RUNNING = "Stoker was not running"


class GpuHistory(Record):
    """What one GPU did. `number` is None for a GPU that this host does not have any more."""

    number: int | None
    visible: str
    uuid: str
    time: GpuTime

    def reasons(self) -> list[tuple[str, float]]:
        """Why it did nothing for jobs that waited, with seconds; the longest first."""
        found = list(self.time.reasons)
        if self.time.off >= 1:
            found.append((NOT_RUNNING, self.time.off))
        return sorted(found, key=lambda reason: -reason[1])

    def share(self, seconds: float) -> str:
        """A part of the recorded time, in percent; `-` if nothing is recorded.

        >>> one = GpuHistory(0, "0", "GPU-1", GpuTime(busy=50.0, idle=150.0))
        >>> one.share(50.0), one.share(0.0), one.share(0.1)
        ('25%', '0%', '<1%')
        """
        known = sum(self.time[:5])
        if not known:
            return "-"
        percent = 100 * seconds / known
        return "<1%" if 0 < percent < 0.5 else f"{percent:.0f}%"

    def shares(self) -> list[str]:
        """The parts of the recorded time, as the table shows them."""
        return [self.share(seconds) for seconds in self.time[:5]]

    def as_json(self) -> dict[str, Any]:
        return {
            "index": self.number,
            "visible": self.visible,
            "uuid": self.uuid,
            "jobs": self.time.jobs,
            "busy_seconds": round(self.time.busy, 1),
            "other_users_seconds": round(self.time.others, 1),
            "idle_seconds": round(self.time.idle, 1),
            "idle_with_jobs_waiting_seconds": round(self.time.waiting, 1),
            "not_running_seconds": round(self.time.off, 1),
            "unknown_seconds": round(self.time.unknown, 1),
            "shares": dict(zip(_SHARES, self.shares(), strict=True)),
            "reasons": [
                {"reason": reason, "seconds": round(seconds, 1)}
                for reason, seconds in self.reasons()
            ],
        }


class RecordedGpu(Record):
    """The recorded intervals of a GPU. `number` is None if this host does not have it any more."""

    number: int | None
    visible: str
    uuid: str
    intervals: list[Interval]


def recorded_gpus(
    db: Database, settings: Settings, since: float, now: float, until: float = float("inf")
) -> list[RecordedGpu]:
    """What was recorded between `since` and `until`; GPUs that are gone come last."""
    known = gpu_history.read(settings.state_dir, since, until)
    pid = daemon_pid(settings.state_dir)
    running_since = None if pid is None else start_time(pid)
    found = []
    for device in known_devices(db, settings):
        uuid = device.uuid or str(device.number)
        intervals = known.pop(uuid, [])
        found.append(
            RecordedGpu(
                device.number,
                device.visible,
                uuid,
                intervals if running_since is None else _up_to_now(intervals, running_since, now),
            )
        )
    found += [RecordedGpu(None, uuid, uuid, intervals) for uuid, intervals in sorted(known.items())]
    return found


def load_gpu_history(db: Database, settings: Settings, seconds: float) -> list[GpuHistory]:
    """What each GPU did in the last `seconds`; GPUs that are gone come last."""
    now = time.time()
    since = now - seconds
    return [
        GpuHistory(one.number, one.visible, one.uuid, add_up(one.intervals, since, now))
        for one in recorded_gpus(db, settings, since, now)
    ]


def history_json(db: Database, settings: Settings, seconds: float) -> dict[str, Any]:
    """The history of all GPUs, for `--json` and the web UI."""
    from stoker.client.views.job import iso

    return {
        "since": iso(time.time() - seconds),
        "seconds": seconds,
        "gpus": [one.as_json() for one in load_gpu_history(db, settings, seconds)],
    }


def _up_to_now(intervals: list[Interval], running_since: float, now: float) -> list[Interval]:
    """The intervals, of which the last one lasts until now if the running daemon recorded it."""
    last = max(intervals, key=lambda one: one.since, default=None)
    if last is None or last.until < max(running_since, now - _SAVED_SECONDS):
        return intervals
    return [one._replace(until=now) if one is last else one for one in intervals]


HEADER = ("GPU", "BUSY", "JOBS", "OTHER USERS", "NO WORK", "JOBS WAITED", "NOT RUNNING")
_SHARES = ("busy", "other_users", "no_work", "jobs_waited", "not_running")


def history_cells(one: GpuHistory) -> tuple[str, ...]:
    """A row below `HEADER`: shares of the recorded time, and the number of jobs."""
    busy, *others = one.shares()
    return (one.visible, busy, str(one.time.jobs), *others)


def reason_cells(one: GpuHistory) -> list[tuple[str, str, str]]:
    """Rows with GPU, duration and reason."""
    return [
        (one.visible, format_duration(seconds), reason)
        for reason, seconds in one.reasons()
        if seconds >= 0.05
    ]


_OFF = "nothing is recorded: `trace_seconds` is 0 in the settings"


def history_text(queue: Queue, seconds: float) -> str:
    """A table of shares, a table of reasons, and since when there are records."""
    found = load_gpu_history(queue.db, queue.settings, seconds)
    if not found:
        return "no GPUs found"
    parts = [table(HEADER, [history_cells(one) for one in found])]
    reasons = [cells for one in found for cells in reason_cells(one)]
    if reasons:
        parts.append(table(("GPU", "TIME", "WHY NO JOB RAN"), reasons))
    unknown = max(one.time.unknown for one in found)
    if not queue.settings.trace_seconds:
        parts.append(_OFF)
    elif unknown >= seconds:
        parts.append("no records yet")
    elif unknown >= 1:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - seconds + unknown))
        parts.append(f"records begin at {at}")
    return "\n\n".join(parts)
