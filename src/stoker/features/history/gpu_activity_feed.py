"""Publishes what each GPU does, and why idle ones are idle, to the usage recorder.

Only changes are published, and at most one a second for each GPU; if a GPU changes all the time,
one every ten seconds on average. Between two publications, a tick costs one comparison.
"""

from __future__ import annotations

import os
from collections import deque

from stoker.engine.daemon.gpus.gpus import ChangingGpus
from stoker.engine.daemon.gpus.process_owners import user_name
from stoker.engine.daemon.interfaces import Clock
from stoker.engine.daemon.loop import Loop
from stoker.features.history.activity_lines import GONE, ActivityChange, encode
from stoker.features.history.gpu_activity import NO_PLAN, GpuActivity, gpu_activities

_GAP_SECONDS = 1.0
_LONG_GAP_SECONDS = 10.0
_CREDIT = 600.0  # publications after which the long gap applies; one is regained in a long gap
_MAX_PENDING = 4096  # lines kept while there is no recorder
_MAX_JOBS = 16  # ids in one line


class GpuActivityFeed:
    def __init__(self, loop: Loop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._user = user_name(os.getuid())
        self._known: dict[str, tuple[GpuActivity, ActivityChange]] = {}  # by UUID
        self._starts: dict[int, int] = {}  # by device, since the last publication
        self._revision = -1
        self._changed_at = clock.wall()
        self._is_due = False
        self._due_at = self._last_at = clock.mono()
        self._credit = _CREDIT
        self._pending: deque[bytes] = deque(maxlen=_MAX_PENDING)

    def started(self, devices: tuple[int, ...]) -> None:
        """Count a job that starts on these devices."""
        for number in devices:
            self._starts[number] = self._starts.get(number, 0) + 1

    def next_deadline(self) -> float | None:
        """When to call `update` even without an event (monotonic)."""
        return self._due_at if self._is_due else None

    def update(self, now: float) -> None:
        """Publish what changed; called after every tick."""
        if self._loop.revision != self._revision:
            self._revision = self._loop.revision
            self._is_due, self._changed_at = True, self._clock.wall()
        if self._is_due and now >= self._due_at:
            self._is_due = False
            self._credit = min(_CREDIT, self._credit + (now - self._last_at) / _LONG_GAP_SECONDS)
            self._last_at = now
            if self._publish():
                self._credit -= 1
            self._due_at = now + (_GAP_SECONDS if self._credit >= 1 else _LONG_GAP_SECONDS)

    def lines(self) -> deque[bytes]:
        """The lines that the recorder has not got; the caller removes those that it sent."""
        return self._pending

    def repeat(self) -> None:
        """A new recorder has started: it needs the present state of every GPU."""
        lines = {encode(change) for _, change in self._known.values()}
        missing = lines.difference(self._pending)
        self._pending.extendleft(sorted(missing, reverse=True))

    def _publish(self) -> bool:
        loop = self._loop
        devices = {device.number: device.uuid or str(device.number) for device in loop.gpus.devices}
        has_changed = False
        for number, activity in self._activities().items():
            known = self._known.get(devices[number])
            if known is not None and known[0] == activity:
                continue
            has_changed = True
            change = ActivityChange(
                uuid=devices[number],
                at=self._changed_at if known is None else max(self._changed_at, known[1].at),
                kind=activity.kind,
                jobs=activity.jobs[:_MAX_JOBS],
                reason=activity.reason,
                starts=self._starts.pop(number, 0),
            )
            self._known[change.uuid] = activity, change
            self._pending.append(encode(change))
        for uuid in self._known.keys() - set(devices.values()):
            del self._known[uuid]
            self._pending.append(encode(ActivityChange(uuid, self._changed_at, GONE)))
        return has_changed

    def _activities(self) -> dict[int, GpuActivity]:
        loop = self._loop
        jobs: dict[int, tuple[int, ...]] = {}
        for job in loop.running.values():
            for number in job.devices:
                jobs[number] = (*jobs.get(number, ()), job.id)
        snapshot, plan = loop.decision or (None, NO_PLAN)
        return gpu_activities(
            loop.gpus.devices,
            loop.gpus.states,
            () if snapshot is None else snapshot.waiting,
            plan,
            jobs,
            obstacle=self._obstacle(),
            own_user=self._user,
        )

    def _obstacle(self) -> str | None:
        """Why no job at all starts at the moment."""
        loop = self._loop
        if loop.is_draining:
            return "the queue is drained"
        if not loop.takes_work:
            return "waiting for the runner"
        if loop.problem is not None:
            return "the queue cannot be written"
        if isinstance(loop.gpus, ChangingGpus) and loop.gpus.problem is not None:
            return f"waiting for the driver: {loop.gpus.problem}"
        return "the host refused to start a process" if loop.is_paused else None
