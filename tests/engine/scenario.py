"""A small language for tests of the policy: a host, running jobs, waiting jobs, expected starts.

    with Scenario(gpus=2) as host:
        host.runs(1, on=(0,), ends_by=60)
        host.waits(2, gpus=2)
        host.check(waits={2: NO_DEVICE}, reserved=(2, (0, 1), 60))

`check` compares the whole plan: what it does not name must not be there. A scenario that ends
without a check is an error, because it would test nothing.
"""

from __future__ import annotations

from types import TracebackType

from stoker.engine.model import Device, Plan, Request, RunningJob, Snapshot, WaitingJob
from stoker.engine.policy.decide import decide
from stoker.engine.policy.explain import Place, explain_ready

CPU_SLOTS = 4


def a_device(number: int, slots: int = 1) -> Device:
    return Device(number, str(number), slots)


def a_running_job(
    id: int, on: tuple[int, ...] = (), ends_by: float | None = None, since: float = 0.0
) -> RunningJob:
    return RunningJob(id, id, Request(len(on)), on, since, ends_by)


def a_waiting_job(
    id: int, gpus: int = 1, priority: int = 0, time_limit: float | None = None
) -> WaitingJob:
    return WaitingJob(id, priority, Request(gpus), time_limit)


class Scenario:
    """One host at one instant. `slots` lists the slots of each device and replaces `gpus`."""

    def __init__(
        self,
        gpus: int = 0,
        *,
        slots: tuple[int, ...] = (),
        cpu_slots: int = CPU_SLOTS,
        now: float = 0.0,
        draining: bool = False,
    ) -> None:
        self._devices = tuple(a_device(n, count) for n, count in enumerate(slots or (1,) * gpus))
        self._cpu_slots = cpu_slots
        self._now = now
        self._draining = draining
        self._running: list[RunningJob] = []
        self._waiting: list[WaitingJob] = []
        self._is_open = False
        self._is_checked = False

    def __enter__(self) -> Scenario:
        self._is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_open = False
        if error is None and not self._is_checked:
            raise AssertionError("the scenario was never checked")

    def runs(
        self, id: int, on: tuple[int, ...] = (), ends_by: float | None = None, since: float = 0.0
    ) -> None:
        self._change()
        self._running.append(a_running_job(id, on, ends_by, since))

    def waits(
        self, *ids: int, gpus: int = 1, priority: int = 0, time_limit: float | None = None
    ) -> None:
        self._change()
        self._waiting += [a_waiting_job(id, gpus, priority, time_limit) for id in ids]

    def check(
        self,
        *,
        starts: dict[int, tuple[int, ...]] | None = None,
        waits: dict[int, str] | None = None,
        reserved: tuple[int, tuple[int, ...], float | None] | None = None,
    ) -> None:
        """Assert that the plan is exactly this, including the order of `starts`."""
        plan = self._plan()
        found = {start.job: start.devices for start in plan.starts}
        assert list(found.items()) == list((starts or {}).items())
        assert plan.waits == (waits or {})
        assert (plan.reservation and tuple(plan.reservation)) == reserved

    def explain(self, id: int, ahead: int = 0) -> str:
        """Return the reasons that `stoker why` shows, with `ahead` jobs in front of the job."""
        plan = self._plan()
        job = next(job for job in self._waiting if job.id == id)
        return "; ".join(explain_ready(job, self.snapshot(), plan, Place(ahead)))

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self._now,
            self._devices,
            self._cpu_slots,
            tuple(self._running),
            tuple(self._waiting),
            self._draining,
        )

    def _plan(self) -> Plan:
        assert self._is_open, "write `with Scenario(...) as host:`"
        self._is_checked = True
        return decide(self.snapshot())

    def _change(self) -> None:
        assert self._is_open, "write `with Scenario(...) as host:`"
        self._is_checked = False
