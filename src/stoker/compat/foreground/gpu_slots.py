"""Slots of compatible commands: each opaque device string is one slot.

CUDA_VISIBLE_DEVICES is set to the string unchanged: `0`, `0,1` (a pair), a UUID, an empty string,
or an ID that this host does not have. A repeated string is another slot on the same GPUs.

If a string names GPUs of this host, a job in that slot leases them, so that no exclusive job of
another process uses them at the same time. A GPU of several slots is leased in as many parts.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from stoker.engine.daemon.gpus.gpu_usage import GpuUse
from stoker.engine.daemon.gpus.gpus import ChangingGpus, Gpus
from stoker.engine.devices.discovery import has_driver
from stoker.engine.devices.leases.lease import Lease
from stoker.engine.gpus.sample import Sample
from stoker.engine.model import Device, DeviceState, Request, RunningJob
from stoker.engine.policy.eligible import is_named
from stoker.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.engine.daemon.gpus.monitored_gpus import MonitoredGpus

# The order in which free slots are used.
LOWEST = "lowest"  # the order of the list
FIRST_FREED = "first freed"  # FIFO: the order of the list, then the longest free slot first
LAST_FREED = "last freed"  # LIFO: the reverse order of the list, then the last freed slot first

_REMOVED = "no longer in the list of devices"


def split_devices(words: Sequence[str], per_device: int = 1) -> list[str]:
    """The device strings of the slots for `--gpus WORDS`.

    Several words are one slot each, so `0,1 2,3` are two pairs; a single word is a list.

    >>> split_devices(["0", "1"]), split_devices(["0,1"]), split_devices(["0,1", "2,3"])
    (['0', '1'], ['0', '1'], ['0,1', '2,3'])
    >>> split_devices(["0-2,7"]), split_devices(["0,"]), split_devices(["0,1"], 2)
    (['0', '1', '2', '7'], ['0'], ['0', '1', '0', '1'])
    """
    if len(words) == 1 and "," in words[0]:
        words = [part for part in words[0].split(",") if part] or [""]
    return [slot for word in words for slot in expand_range(word)] * per_device


def expand_range(word: str) -> list[str]:
    """
    >>> expand_range("0-2"), expand_range("GPU-0-2"), expand_range("2-0")
    (['0', '1', '2'], ['GPU-0-2'], ['2', '1', '0'])
    """
    first, dash, last = word.partition("-")
    if not dash or not all(
        end.isascii() and end.isdigit() and len(end) < 5 for end in (first, last)
    ):
        return [word]
    step = 1 if int(first) <= int(last) else -1
    return [str(index) for index in range(int(first), int(last) + step, step)]


class _SlotOrder:
    """The order in which free slots are used."""

    def __init__(self, order: str) -> None:
        self._order = order
        self._numbers: list[int] = []

    def add(self, number: int) -> None:
        self._numbers.insert(0 if self._order == LAST_FREED else len(self._numbers), number)

    def freed(self, number: int) -> None:
        if self._order != LOWEST:
            self._numbers.remove(number)
            self.add(number)

    def sort(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        return tuple(devices[number] for number in self._numbers)


class _SlotTable:
    """The slots by number. Numbers are never reused: the database refers to slots by them."""

    def __init__(self, order: str) -> None:
        self.order = _SlotOrder(order)
        self.names: list[str] = []
        self.closed: set[int] = set()

    def use(self, names: Iterable[str]) -> None:
        names = list(names)
        wanted = Counter(names)
        for number, name in enumerate(self.names):
            if wanted[name]:
                wanted[name] -= 1
                self.closed.discard(number)
            else:
                self.closed.add(number)
        for name in names:  # new slots keep the given order, also for repeated names
            if wanted[name]:
                wanted[name] -= 1
                self.order.add(len(self.names))
                self.names.append(name)


class SlotGpus(Gpus):
    """Slots on devices of which only the names are known."""

    def __init__(self, names: Iterable[str], order: str = LOWEST) -> None:
        super().__init__(())
        self._table = _SlotTable(order)
        self._in_order: tuple[Device, ...] | None = None
        self.use(names)

    def use(self, names: Iterable[str]) -> None:
        """Replace the slots; jobs in removed slots may finish."""
        self._table.use(names)
        self.devices = tuple(Device(n, name) for n, name in enumerate(self._table.names))
        self.states = {number: DeviceState(closed_reason=_REMOVED) for number in self._table.closed}
        self._in_order = None

    @property
    def in_order(self) -> tuple[Device, ...]:
        if self._in_order is None:
            self._in_order = self._table.order.sort(self.devices)
        return self._in_order

    def attempt_ended(self, job: RunningJob, now: float) -> None:
        for number in job.devices:
            self._table.order.freed(number)
        self._in_order = None

    def apply_settings(self, rows: Iterable[tuple[str, bool, int | None, str | None]]) -> None:
        """Ignored: `stoker gpus` does not apply to the slots of a foreground run."""


class MonitoredSlots(ChangingGpus):
    """Slots of which at least one is on a GPU of this host."""

    def __init__(self, names: Iterable[str], real: MonitoredGpus, order: str = LOWEST) -> None:
        super().__init__(())
        self._real = real
        self.leases = real.leases
        self._table = _SlotTable(order)
        self._gpus_of: list[tuple[int, ...]] = []  # by slot: the numbers of its GPUs
        self._slots_on: Counter[int] = Counter()  # by GPU: the number of its slots
        self.use(names)

    def use(self, names: Iterable[str]) -> None:
        """Replace the slots; jobs in removed slots may finish."""
        self._table.use(names)
        for name in self._table.names[len(self._gpus_of) :]:
            self._gpus_of.append(_named_gpus(name, self._real.devices))
        opened = [gpus for n, gpus in enumerate(self._gpus_of) if n not in self._table.closed]
        self._slots_on = Counter(number for gpus in opened for number in gpus)
        uuids = {device.number: device.uuid for device in self._real.devices}
        self._real.use_only({uuids[n]: slots for n, slots in self._slots_on.items() if n in uuids})
        self.devices = tuple(
            Device(number, name, uuid=",".join(uuids.get(gpu, "") for gpu in self._gpus_of[number]))
            for number, name in enumerate(self._table.names)
        )
        self._update_states()

    @property
    def has_gpus(self) -> bool:
        """Whether any slot is on a GPU of this host."""
        return any(self._gpus_of)

    @property
    def in_order(self) -> tuple[Device, ...]:
        return self._table.order.sort(self.devices)

    def _update_states(self) -> None:
        """Take over the states of the GPUs; a slot is open when all of its GPUs are."""
        self.problem = self._real.problem
        self.states = {number: self._state(number) for number in range(len(self._gpus_of))}

    def _state(self, slot: int) -> DeviceState:
        if slot in self._table.closed:
            return DeviceState(closed_reason=_REMOVED)
        found = DeviceState()
        for number in self._gpus_of[slot]:
            state = self._real.states.get(number)
            if state is None:
                return DeviceState(closed_reason=f"GPU {number} has disappeared")
            if state.closed_reason is not None and (
                found.closed_reason is None or found.closes_briefly
            ):
                found = found._replace(
                    closed_reason=state.closed_reason, closes_briefly=state.closes_briefly
                )
            # On a GPU of several slots, the lease accounts for the memory of other processes.
            if state.has_other_processes and self._slots_on[number] <= 1:
                found = found._replace(has_other_processes=True, note=state.note)
        return found

    def _with_gpus(self, job: RunningJob) -> RunningJob:
        """The job with the numbers of its GPUs in place of its slots."""
        return job._replace(devices=tuple(n for slot in job.devices for n in self._gpus_of[slot]))

    def update(self, sample: Sample, live: Mapping[int, RunningJob]) -> bool:
        on_gpus = {attempt: self._with_gpus(job) for attempt, job in live.items()}
        has_changed = self._real.update(sample, on_gpus)
        self._update_states()
        return has_changed

    def take_waited_lease(self) -> bool:
        has_changed = self._real.take_waited_lease()
        self._update_states()
        return has_changed

    def next_poll(self, now: float) -> float | None:
        return self._real.next_poll(now)

    def lost(self) -> set[int]:
        lost = self._real.lost()
        return {slot for slot, gpus in enumerate(self._gpus_of) if not lost.isdisjoint(gpus)}

    def use_only(self, names: dict[str, int] | None) -> None:
        self.use(name for name, slots in (names or {}).items() for _ in range(slots))

    def attempt_ended(self, job: RunningJob, now: float) -> None:
        for slot in job.devices:
            self._table.order.freed(slot)
        self._real.attempt_ended(self._with_gpus(job), now)
        self._update_states()

    def take_use(self, attempt: int) -> GpuUse:
        return self._real.take_use(attempt)

    def lease(self, request: Request, devices: tuple[int, ...]) -> Lease | None:
        gpus = tuple(number for slot in devices for number in self._gpus_of[slot])
        lease = self._real.lease(Request(gpus=len(gpus)), gpus)
        self._update_states()
        return lease

    def drop_unused_waiter(self) -> None:
        self._real.drop_unused_waiter()

    def apply_settings(self, rows: Iterable[tuple[str, bool, int | None, str | None]]) -> None:
        """Ignored: `stoker gpus` does not apply to the slots of a foreground run."""

    def close(self) -> None:
        self._real.close()


def _named_gpus(name: str, devices: tuple[Device, ...]) -> tuple[int, ...]:
    """The numbers of the GPUs that a device string names, without repeats."""
    parts = [part.strip() for part in name.split(",")]
    found = [d.number for part in parts if part for d in devices if is_named(d, (part,))]
    return tuple(dict.fromkeys(found))


def make_slots(
    names: Sequence[str],
    settings: Settings,
    tag_base: int,
    order: str = LOWEST,
    warn: Callable[[str], None] = lambda text: None,
) -> SlotGpus | MonitoredSlots:
    """Create the slots of a run, with leases where the names mean GPUs of this host.

    `warn` is called if the driver does not answer; the slots then have no leases.
    """
    opaque = SlotGpus(names, order)
    if settings.devices or not has_driver():
        return opaque
    # Inside a job, the job's lease also covers this run.
    inherited = os.environ.get("STOKER_GPU_UUIDS", "").split(",")
    from stoker.engine.daemon.gpus.monitored_gpus import MonitoredGpus
    from stoker.engine.devices.driver_client import sample_once

    real = MonitoredGpus(tag_base, settings.leases, settings.gpus_by_uuid, inherited)
    real.update(sample_once(), {})
    if real.problem is not None:
        warn(f"cannot lease the GPUs, so other processes may use them too: {real.problem}")
        return opaque
    monitored = MonitoredSlots(names, real, order)
    return monitored if monitored.has_gpus else opaque
