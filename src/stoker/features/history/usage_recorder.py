"""The usage recorder: samples the resource usage of jobs and GPUs and stores it for charts.

python -m stoker.features.history.usage_recorder

stdin    samples of the GPUs (engine/devices/sample_lines.py) and changes of what they do
         (features/history/activity_lines.py), one per line; exits at end of file

The daemon runs it as a separate process while there is something to sample. It does not call the
GPU driver, keeps no state that is not on disk, and may be killed at any time.
"""

from __future__ import annotations

import os
import select
import sqlite3
import sys
import time

from stoker.engine.devices.sample_lines import decode
from stoker.engine.gpus.sample import GpuSample, Sample
from stoker.engine.store.database import FILE_NAME
from stoker.engine.store.device_column import parse_device_numbers
from stoker.engine.supervisor import locks
from stoker.engine.supervisor.job_processes import owner_of
from stoker.engine.supervisor.process_usage import UsageSampler
from stoker.errors import Conflict, Error
from stoker.features.history.activity_lines import GONE, ActivityChange
from stoker.features.history.activity_lines import decode as decode_change
from stoker.features.history.gpu_time import Interval
from stoker.features.history.store_usage import TraceWriter, TrackRow, open_for_reading
from stoker.features.history.time_series import gather
from stoker.record import Record
from stoker.settings import Settings, load_settings
from stoker.states import ACTIVE

TRACER_LOCK = "tracer.lock"

_MAX_INTERVAL = 10.0  # seconds; a longer pause would show as a gap (see usage_charts.py)
_GPU_STEPS = 2  # a reading of each GPU is stored every N steps
_IDLE_STEPS = 12  # exit after this many steps without jobs and without samples from the daemon
_MAX_LINE_BYTES = 1 << 20
_MAX_UNSAVED = 10_000  # intervals, while the disk is full

GpuValues = tuple[float | None, ...]  # utilization, memory, power, temperature


class GpuActivities:
    """The present interval of each GPU, and those that ended and are not saved yet."""

    def __init__(self) -> None:
        self._present: dict[str, Interval] = {}  # by UUID
        self._ended: list[Interval] = []

    def __bool__(self) -> bool:
        return bool(self._present)

    def add(self, change: ActivityChange) -> None:
        """End the present interval of a GPU, and begin the next one."""
        before = self._present.pop(change.uuid, None)
        if before is not None and before.since != change.at:
            self._ended.append(before._replace(until=max(before.since, change.at)))
            del self._ended[:-_MAX_UNSAVED]
        if change.kind != GONE:
            self._present[change.uuid] = Interval(
                uuid=change.uuid,
                since=change.at,
                until=change.at,
                kind=change.kind,
                jobs=change.jobs,
                reason=change.reason,
                starts=change.starts,
            )

    def unsaved(self, now: float) -> list[Interval]:
        """The intervals to save; those of the present last until now."""
        present = [one._replace(until=max(one.since, now)) for one in self._present.values()]
        return [*self._ended, *present]

    def saved(self) -> None:
        self._ended.clear()


class UsageRecorder:
    def __init__(self, settings: Settings) -> None:
        self._interval = min(_MAX_INTERVAL, max(0.01, settings.trace_seconds))
        self._queue = QueueReader(settings.state_dir)
        self._tag = self._queue.tag()
        self._traces = TraceWriter(settings.state_dir, self._tag)
        self._process_usage = UsageSampler(self._tag)
        self._running: dict[int, RunningAttempt] = {}  # by attempt
        self._attempts_on: dict[str, list[int]] = {}  # by UUID of the GPU
        self._gpus: dict[str, list[GpuValues]] = {}  # by UUID, since the last reading
        self._job_gpus: dict[int, list[GpuValues]] = {}  # by job, since the last reading
        self._activities = GpuActivities()
        self._steps = 0
        self._busy_step = 0  # the last step with a job or a sample
        self._logged: str | None = None  # the last error that was logged

    def work(self, inbox: Inbox) -> None:
        """Record samples until stdin is closed or there is nothing to sample."""
        due = time.monotonic()
        while self._steps - self._busy_step < _IDLE_STEPS:
            messages = inbox.wait(max(0.0, due - time.monotonic()))
            if messages is None:
                self._record([])  # until when the GPUs did what they do
                break
            for message in messages:
                if isinstance(message, ActivityChange):
                    self._activities.add(message)
                else:
                    self._add_sample(message)
            now = time.monotonic()
            if now >= due:
                due = max(due + self._interval, now)  # do not catch up after a delay
                self._tick(now)
        self._traces.close()
        self._queue.close()

    def _tick(self, now: float) -> None:
        self._steps += 1
        self._load_running_jobs()
        rows = self._process_rows(now)
        if self._steps % _GPU_STEPS == 0:
            rows += [
                TrackRow("gpu", uuid, gather("gpu", samples))
                for uuid, samples in self._gpus.items()
            ]
            rows += [
                TrackRow("job_gpus", str(job), gather("job_gpus", samples))
                for job, samples in self._job_gpus.items()
            ]
            self._gpus.clear()
            self._job_gpus.clear()
        self._record(rows)

    def _record(self, rows: list[TrackRow]) -> None:
        now = time.time()
        self._traces.append(now, rows, self._queue.is_gone, self._activities.unsaved(now))
        if self._traces.error is None:
            self._activities.saved()
        if self._traces.error not in (None, self._logged):
            print(self._traces.error, file=sys.stderr, flush=True)
        self._logged = self._traces.error

    def _load_running_jobs(self) -> None:
        try:
            self._running = {one.attempt: one for one in self._queue.running()}
            uuids = self._queue.gpus()
        except sqlite3.Error:
            return  # keep the last state; the next step tries again
        if self._running or self._activities:
            self._busy_step = self._steps
        self._attempts_on = {}
        for one in self._running.values():
            for number in one.devices:
                self._attempts_on.setdefault(uuids.get(number, ""), []).append(one.attempt)

    def _process_rows(self, now: float) -> list[TrackRow]:
        return [
            TrackRow(
                "job_processes", str(self._running[attempt].job), gather("job_processes", [usage])
            )
            for attempt, usage in self._process_usage.sample(self._running, now).items()
        ]

    # -- GPUs ----------------------------------------------------------------------------------

    def _add_sample(self, sample: Sample) -> None:
        self._busy_step = self._steps
        shares: dict[int, list[GpuValues]] = {}
        for gpu in sample.gpus or ():
            values = (gpu.utilisation, gpu.used, gpu.power, gpu.temperature)
            self._gpus.setdefault(gpu.uuid, []).append(values)
            memory = self._memory_by_attempt(gpu)
            attempts = memory.keys() | self._attempts_on.get(gpu.uuid, [])
            for attempt in attempts:
                power = None if gpu.power is None else gpu.power / len(attempts)
                share = (gpu.utilisation, memory.get(attempt, 0), power, gpu.temperature)
                shares.setdefault(attempt, []).append(share)
        for attempt, parts in shares.items():
            self._job_gpus.setdefault(self._running[attempt].job, []).append(_combined(parts))

    def _memory_by_attempt(self, gpu: GpuSample) -> dict[int, int | None]:
        """GPU memory of each attempt on a GPU; None if the driver does not report it."""
        found: dict[int, int | None] = {}
        for process in gpu.processes:
            attempt = owner_of(process.pid, self._tag)
            if attempt is None or attempt not in self._running:
                continue
            before = found.get(attempt, 0)
            known = before is not None and process.memory is not None
            found[attempt] = (before or 0) + (process.memory or 0) if known else None
        return found


def _combined(parts: list[GpuValues]) -> GpuValues:
    """The usage of one attempt over all its GPUs."""
    utilization, memory, power, temperature = (
        [value for value in column if value is not None] for column in zip(*parts, strict=True)
    )
    return (
        sum(utilization) / len(utilization) if utilization else None,
        sum(memory) if memory else None,
        sum(power) if power else None,
        max(temperature, default=None),
    )


class Inbox:
    """Reads messages from a pipe, one per line; invalid lines are ignored."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._rest = b""

    def wait(self, seconds: float) -> list[Sample | ActivityChange] | None:
        """Return the messages that arrived within the time; None at end of file."""
        if not self._poll.poll(seconds * 1000):
            return []
        data = os.read(self._descriptor, 1 << 16)
        if not data:
            return None
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) < _MAX_LINE_BYTES else b""
        messages: list[Sample | ActivityChange] = []
        for line in filter(None, lines):
            try:
                messages.append(decode_change(line) or decode(line))
            except ValueError:
                pass  # truncated because this process was too slow
        return messages


def _take_lock(folder: str, inbox: Inbox) -> bool:
    """Take the lock of the recorder; wait while another one exits. False at end of stdin."""
    while True:
        try:
            locks.take(folder, TRACER_LOCK)
            return True
        except Conflict:
            if inbox.wait(0.1) is None:
                return False


def main() -> None:
    os.umask(0o077)
    os.nice(10)  # jobs come first
    inbox = Inbox(0)
    try:
        settings = load_settings()
        if _take_lock(settings.state_dir, inbox):
            UsageRecorder(settings).work(inbox)
    except Error as error:
        print(f"error: {error.message}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except sqlite3.Error as error:
        raise SystemExit(f"error: the usage recorder cannot read the queue: {error}") from None


class RunningAttempt(Record):
    """A running attempt."""

    attempt: int
    job: int
    devices: tuple[int, ...]


class QueueReader:
    """Read-only access to the queue for the usage recorder; it never blocks writers."""

    def __init__(self, folder: str) -> None:
        self._db = open_for_reading(os.path.join(folder, FILE_NAME))

    def tag(self) -> int:
        return int(self._db.execute("SELECT value FROM meta WHERE key = 'tag'").fetchone()[0])

    def running(self) -> list[RunningAttempt]:
        marks = ", ".join("?" * len(ACTIVE))
        rows = self._db.execute(
            "SELECT a.id, a.job, a.devices FROM jobs j JOIN attempts a ON a.id = j.attempt"
            f" WHERE j.state IN ({marks})",
            tuple(ACTIVE),
        )
        return [RunningAttempt(id, job, parse_device_numbers(devices)) for id, job, devices in rows]

    def gpus(self) -> dict[int, str]:
        """Return the UUIDs of GPUs by number."""
        return dict(self._db.execute("SELECT number, uuid FROM devices"))

    def is_gone(self, job: int) -> bool:
        try:
            return self._db.execute("SELECT 1 FROM jobs WHERE id = ?", (job,)).fetchone() is None
        except sqlite3.Error:
            return False  # unknown now; checked again later

    def close(self) -> None:
        self._db.close()


if __name__ == "__main__":
    main()
