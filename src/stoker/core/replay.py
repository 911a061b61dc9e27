"""A trace of jobs through the policy, in virtual time: `stoker simulate`.

The policy is the one that the daemon uses (`plan` and `in_order`); only the ground differs: many
equal devices of which each job takes whole ones, kept as a pile and a sorted list of ends, so that
thousands of devices cost no more than a few.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from stoker.core.model import Request, Rules, WaitingJob
from stoker.core.policy import in_order, plan
from stoker.core.record import Record

_LOOK = 16


class TraceJob(Record):
    id: int
    submit: float
    seconds: float
    gpus: int
    family: str = ""


class Result(Record):
    """Waits in seconds in the order of the trace."""

    waits: list[float]
    makespan: float
    utilisation: float  # of the devices, 0 to 1, from the first submit to the last end


class EqualDevices:
    """The ground of the replay."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.count = count
        self._free = list(range(count - 1, -1, -1))
        self._busy: list[tuple[float, float, int]] = []  # (likely end, since, device)
        self._kept_until: float | None = None
        self._is_kept = False

    @property
    def room(self) -> int:
        return len(self._free)

    @property
    def has_room(self) -> bool:
        return bool(self._free)

    def begin(self, now: float) -> None:
        """A new decision: reservations are made anew."""
        self.now, self._is_kept, self._kept_until = now, False, None

    def is_possible(self, request: Request) -> bool:
        return request.gpus <= self.count

    def place(self, request: Request, end: float | None) -> tuple[int, ...] | None:
        # What is free when somebody has to wait is less than that one needs, so all of it is kept.
        if self._is_kept and (end is None or self._kept_until is None or end > self._kept_until):
            return None
        return tuple(self._free[-request.gpus :]) if self.would_fit(request) else None

    def would_fit(self, request: Request) -> bool:
        return request.gpus <= len(self._free)

    def take(self, request: Request, devices: tuple[int, ...], end: float | None) -> None:
        del self._free[-request.gpus :]
        likely = float("inf") if end is None else end
        for device in devices:
            insort(self._busy, (likely, self.now, device))

    def reserve(self, request: Request) -> tuple[tuple[int, ...], float | None]:
        missing = request.gpus - len(self._free)
        at = max(self._busy[missing - 1][0], self.now)
        self._is_kept, self._kept_until = True, None if at == float("inf") else at
        return tuple(device for _, _, device in self._busy[:missing]), self._kept_until

    def give_back(self, devices: tuple[int, ...]) -> None:
        gone = set(devices)
        self._busy = [entry for entry in self._busy if entry[2] not in gone]
        self._free += devices


def replay(
    jobs: Sequence[TraceJob],
    devices: int,
    rules: Rules,
    predict: Callable[[TraceJob], float | None],
    learn: Callable[[TraceJob], None],
) -> Result:
    """Run the trace. `predict` is asked when a job comes, `learn` told when it has ended."""
    ground = EqualDevices(devices)
    lines: dict[tuple[int, int], deque[WaitingJob]] = {}
    by_id = {job.id: job for job in jobs}
    running: list[tuple[float, int, tuple[int, ...]]] = []
    waits = dict.fromkeys(by_id, 0.0)
    coming = deque(sorted(jobs, key=lambda job: (job.submit, job.id)))
    busy_seconds = last_end = 0.0
    while coming or running:
        now = min([running[0][0]] if running else [], default=float("inf"))
        if coming:
            now = min(now, coming[0].submit)
        while running and running[0][0] <= now:
            _, id, held = heapq.heappop(running)
            ground.give_back(held)
            learn(by_id[id])
        while coming and coming[0].submit <= now:
            job = coming.popleft()
            expected = predict(job)
            length = 0 if expected is None else max(1, int(expected).bit_length())
            line = lines.setdefault((job.gpus, length if rules.short_first else 0), deque())
            line.append(WaitingJob(job.id, 0, Request(job.gpus), None, "", expected, job.submit))
        for start, held in _starts(ground, lines, rules, now):
            job = by_id[start.id]
            waits[job.id] = now - job.submit
            busy_seconds += job.seconds * job.gpus
            last_end = max(last_end, now + job.seconds)
            heapq.heappush(running, (now + job.seconds, job.id, held))
    first = min((job.submit for job in jobs), default=0.0)
    span = last_end - first
    return Result(list(waits.values()), span, busy_seconds / (span * devices) if span else 0.0)


def _starts(
    ground: EqualDevices,
    lines: dict[tuple[int, int], deque[WaitingJob]],
    rules: Rules,
    now: float,
) -> Iterator[tuple[WaitingJob, tuple[int, ...]]]:
    """Offer the heads of the lines until nothing more starts, as the daemon does."""
    while ground.room and lines:
        ground.begin(now)
        look = min(_LOOK, ground.room)
        heads = {job.id: (key, job) for key, line in lines.items() for job in islice(line, look)}
        offered = in_order([job for _, job in heads.values()], (), now, rules)
        starts = plan(offered, ground, 0, rules).starts
        for start in starts:
            key, job = heads[start.job]
            lines[key].remove(job)
            yield job, start.devices
            if not lines[key]:
                del lines[key]
        if not starts:
            return
