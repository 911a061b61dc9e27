"""The tracer: samples what jobs and cards use, and keeps it for charts.

python -m stoker.usage.usage_recorder

stdin    samples of the GPUs, one a line (devices/sample_lines.py); end of file: exit

A process of its own that the daemon keeps alive while there is something to sample. It asks no
driver, holds nothing that is not on disk, and may be killed at any instant.
"""

from __future__ import annotations

import os
import select
import sqlite3
import sys
import time

from stoker.core.formats.time_series import gather
from stoker.core.gpus.sample import GpuSample, Sample
from stoker.devices.sample_lines import decode
from stoker.errors import Conflict, Error
from stoker.settings import Settings, load_settings
from stoker.store.usage_history import QueueReader, Row, Running, TraceWriter
from stoker.supervisor import locks
from stoker.supervisor.job_processes import owner_of
from stoker.supervisor.process_usage import UsageSampler

TRACER_LOCK = "tracer.lock"

_LONGEST_PACE = 10.0  # seconds; a longer silence looks like a gap (see stoker/traces.py)
_CARD_BEATS = 2  # every so many of them, what was heard of the cards becomes a reading
_IDLE_BEATS = 12  # without jobs and without a word from the daemon: there is nothing to do
_LONGEST_LINE = 1 << 20

Look = tuple[float | None, ...]  # use, memory, power, temperature


class UsageRecorder:
    def __init__(self, settings: Settings) -> None:
        self._pace = min(_LONGEST_PACE, max(0.01, settings.trace_seconds))
        self._queue = QueueReader(settings.state_dir)
        self._tag = self._queue.tag()
        self._traces = TraceWriter(settings.state_dir, self._tag)
        self._trees = UsageSampler(self._tag)
        self._running: dict[int, Running] = {}  # by attempt
        self._places: dict[str, list[int]] = {}  # UUID: attempts
        self._cards: dict[str, list[Look]] = {}  # by UUID, since the last reading
        self._shares: dict[int, list[Look]] = {}  # by job
        self._beats = 0
        self._busy_beat = 0
        self._told: str | None = None

    def work(self, inbox: Inbox) -> None:
        """Until nobody needs it."""
        due = time.monotonic()
        while self._beats - self._busy_beat < _IDLE_BEATS:
            samples = inbox.wait(max(0.0, due - time.monotonic()))
            if samples is None:
                break
            for sample in samples:
                self._hear(sample)
            now = time.monotonic()
            if now >= due:
                due = max(due + self._pace, now)  # a steady beat, and no haste after a delay
                self._beat(now)
        self._traces.close()
        self._queue.close()

    def _beat(self, now: float) -> None:
        self._beats += 1
        self._look_at_queue()
        rows = self._tree_rows(now)
        if self._beats % _CARD_BEATS == 0:
            rows += [Row("card", uuid, gather("card", some)) for uuid, some in self._cards.items()]
            rows += [
                Row("share", str(job), gather("share", some)) for job, some in self._shares.items()
            ]
            self._cards.clear()
            self._shares.clear()
        self._traces.tick(time.time(), rows, self._queue.is_gone)
        if self._traces.trouble not in (None, self._told):
            print(self._traces.trouble, file=sys.stderr, flush=True)
        self._told = self._traces.trouble

    def _look_at_queue(self) -> None:
        try:
            self._running = {one.attempt: one for one in self._queue.running()}
            uuids = self._queue.cards()
        except sqlite3.Error:
            return  # as it was; the next look will tell
        if self._running:
            self._busy_beat = self._beats
        self._places = {}
        for one in self._running.values():
            for number in one.devices:
                self._places.setdefault(uuids.get(number, ""), []).append(one.attempt)

    def _tree_rows(self, now: float) -> list[Row]:
        return [
            Row("tree", str(self._running[attempt].job), gather("tree", [tree]))
            for attempt, tree in self._trees.look(self._running, now).items()
        ]

    # -- cards ---------------------------------------------------------------------------------

    def _hear(self, sample: Sample) -> None:
        self._busy_beat = self._beats
        parts: dict[int, list[Look]] = {}
        for card in sample.cards or ():
            look = (card.utilisation, card.used, card.power, card.temperature)
            self._cards.setdefault(card.uuid, []).append(look)
            had = self._memory_by_attempt(card)
            here = had.keys() | self._places.get(card.uuid, [])
            for attempt in here:
                power = None if card.power is None else card.power / len(here)
                part = (card.utilisation, had.get(attempt, 0), power, card.temperature)
                parts.setdefault(attempt, []).append(part)
        for attempt, some in parts.items():
            self._shares.setdefault(self._running[attempt].job, []).append(_together(some))

    def _memory_by_attempt(self, card: GpuSample) -> dict[int, int | None]:
        """What attempts have on a card; None where the driver will not tell."""
        found: dict[int, int | None] = {}
        for process in card.processes:
            attempt = owner_of(process.pid, self._tag)
            if attempt is None or attempt not in self._running:
                continue
            before = found.get(attempt, 0)
            known = before is not None and process.memory is not None
            found[attempt] = (before or 0) + (process.memory or 0) if known else None
        return found


def _together(parts: list[Look]) -> Look:
    """What one attempt has of all its cards."""
    use, memory, power, heat = ([v for v in column if v is not None]
                                for column in zip(*parts, strict=True))  # fmt: skip
    return (
        sum(use) / len(use) if use else None,
        sum(memory) if memory else None,
        sum(power) if power else None,
        max(heat, default=None),
    )


class Inbox:
    """Samples that come in by lines; whatever else comes is passed over."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._rest = b""

    def wait(self, seconds: float) -> list[Sample] | None:
        """What came within the time; None when nobody is left who could say anything."""
        if not self._poll.poll(seconds * 1000):
            return []
        data = os.read(self._descriptor, 1 << 16)
        if not data:
            return None
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) < _LONGEST_LINE else b""
        samples = []
        for line in filter(None, lines):
            try:
                samples.append(decode(line))
            except ValueError:
                pass  # cut short because we were slow
        return samples


def _take_lock(folder: str, inbox: Inbox) -> bool:
    """Be the only one; another may still be about to leave. False when nobody needs us any more."""
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
        raise SystemExit(f"error: the tracer cannot read the queue: {error}") from None


if __name__ == "__main__":
    main()
