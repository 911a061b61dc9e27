"""Opaque device strings as devices of the engine: every string is one slot.

A string goes into CUDA_VISIBLE_DEVICES as it is: `0`, `0,1` (a pair), a UUID, nothing at all, or an
id that this host does not have. The same string again is another slot. Where a string means cards
of this host, a job in that slot leases them, so that nobody else's exclusive job is there as well;
cards that several slots share are leased in as many parts.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from stoker.core.gpus.sample import Sample
from stoker.core.model import Device, DeviceState, Request, RunningJob
from stoker.core.policy.placement import is_named
from stoker.daemon.gpus.fixed_gpus import ChangingGpus, FixedGpus
from stoker.daemon.gpus.gpu_usage import GpuUse
from stoker.devices.discovery import has_driver
from stoker.devices.leases.lease import Lease
from stoker.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.daemon.gpus.monitored_gpus import MonitoredGpus

# In which order free slots are used.
LOWEST = "lowest"  # as they are listed
FIRST_FREED = "first freed"  # as they are listed, then the one that has been free longest
LAST_FREED = "last freed"  # the last one of the list first, then the one that was freed last

_NOT_NAMED = "not among the devices any more"


def split_devices(words: Sequence[str], per_device: int = 1) -> list[str]:
    """The slots that words of a command line mean.

    Several words are a slot each, so that `0,1 2,3` are two pairs; a single one is a list.

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


class _Turns:
    """Whose turn it is among the free slots."""

    def __init__(self, order: str) -> None:
        self._order = order
        self._numbers: list[int] = []

    def add(self, number: int) -> None:
        self._numbers.insert(0 if self._order == LAST_FREED else len(self._numbers), number)

    def freed(self, number: int) -> None:
        if self._order != LOWEST:
            self._numbers.remove(number)
            self.add(number)

    def of(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        return tuple(devices[number] for number in self._numbers)


class _Names:
    """The slots by number. Numbers are never given anew: jobs are on record by them."""

    def __init__(self, order: str) -> None:
        self.turns = _Turns(order)
        self.all: list[str] = []
        self.closed: set[int] = set()

    def use(self, names: Iterable[str]) -> None:
        names = list(names)
        wanted = Counter(names)
        for number, name in enumerate(self.all):
            if wanted[name]:
                wanted[name] -= 1
                self.closed.discard(number)
            else:
                self.closed.add(number)
        for name in names:  # in the order in which they were given, repeats as well
            if wanted[name]:
                wanted[name] -= 1
                self.turns.add(len(self.all))
                self.all.append(name)


class SlotGpus(FixedGpus):
    """Slots on devices of which nothing is known but their names."""

    def __init__(self, names: Iterable[str], order: str = LOWEST) -> None:
        super().__init__(())
        self._names = _Names(order)
        self._in_order: tuple[Device, ...] | None = None
        self.use(names)

    def use(self, names: Iterable[str]) -> None:
        """These slots from now on; what runs in others may finish."""
        self._names.use(names)
        self.devices = tuple(Device(n, name) for n, name in enumerate(self._names.all))
        self.states = {number: DeviceState(closed=_NOT_NAMED) for number in self._names.closed}
        self._in_order = None

    @property
    def in_order(self) -> tuple[Device, ...]:
        if self._in_order is None:
            self._in_order = self._names.turns.of(self.devices)
        return self._in_order

    def attempt_ended(self, job: RunningJob, now: float) -> None:
        for number in job.devices:
            self._names.turns.freed(number)
        self._in_order = None

    def apply_settings(self, rows: Iterable[tuple[str, bool, int | None, str | None]]) -> None:
        """Nobody decides about slots of a run."""


class MonitoredSlots(ChangingGpus):
    """Slots of which some are on cards of this host."""

    def __init__(self, names: Iterable[str], real: MonitoredGpus, order: str = LOWEST) -> None:
        super().__init__(())
        self._real = real
        self._names = _Names(order)
        self._on: list[tuple[int, ...]] = []  # by slot: the numbers of its cards
        self._shares: Counter[int] = Counter()  # by card: how many slots it is for
        self.use(names)

    def use(self, names: Iterable[str]) -> None:
        """These slots from now on; what runs in others may finish."""
        self._names.use(names)
        for name in self._names.all[len(self._on) :]:
            self._on.append(_cards_of(name, self._real.devices))
        opened = [on for n, on in enumerate(self._on) if n not in self._names.closed]
        self._shares = Counter(number for on in opened for number in on)
        uuids = {device.number: device.uuid for device in self._real.devices}
        self._real.use_only({uuids[n]: slots for n, slots in self._shares.items() if n in uuids})
        self.devices = tuple(
            Device(number, name, uuid=",".join(uuids.get(card, "") for card in self._on[number]))
            for number, name in enumerate(self._names.all)
        )
        self._follow()

    @property
    def has_cards(self) -> bool:
        """Whether any slot is on a card of this host."""
        return any(self._on)

    @property
    def in_order(self) -> tuple[Device, ...]:
        return self._names.turns.of(self.devices)

    def _follow(self) -> None:
        """A slot is open when all of its cards are."""
        real = self._real
        self.trouble, self.lease_trouble, self.waiter = (
            real.trouble, real.lease_trouble, real.waiter
        )  # fmt: skip
        self.states = {number: self._state(number) for number in range(len(self._on))}

    def _state(self, slot: int) -> DeviceState:
        if slot in self._names.closed:
            return DeviceState(closed=_NOT_NAMED)
        found = DeviceState()
        for number in self._on[slot]:
            state = self._real.states.get(number)
            if state is None:
                return DeviceState(closed=f"GPU {number} is gone")
            if state.closed is not None and (found.closed is None or found.is_brief):
                found = found._replace(closed=state.closed, is_brief=state.is_brief)
            # Where slots share a card, what others have of it is the lease's business.
            if state.has_strangers and self._shares[number] <= 1:
                found = found._replace(has_strangers=True, note=state.note)
        return found

    def _on_cards(self, job: RunningJob) -> RunningJob:
        return job._replace(devices=tuple(n for slot in job.devices for n in self._on[slot]))

    def update(self, sample: Sample, live: Mapping[int, RunningJob]) -> bool:
        on_cards = {attempt: self._on_cards(job) for attempt, job in live.items()}
        has_changed = self._real.update(sample, on_cards)
        self._follow()
        return has_changed

    def take_waited_lease(self) -> bool:
        has_changed = self._real.take_waited_lease()
        self._follow()
        return has_changed

    def next_poll(self, now: float) -> float | None:
        return self._real.next_poll(now)

    def lost(self) -> set[int]:
        lost = self._real.lost()
        return {slot for slot, on in enumerate(self._on) if not lost.isdisjoint(on)}

    def use_only(self, names: dict[str, int] | None) -> None:
        self.use(name for name, slots in (names or {}).items() for _ in range(slots))

    def attempt_ended(self, job: RunningJob, now: float) -> None:
        for slot in job.devices:
            self._names.turns.freed(slot)
        self._real.attempt_ended(self._on_cards(job), now)
        self._follow()

    def take_use(self, attempt: int) -> GpuUse:
        return self._real.take_use(attempt)

    def lease(self, request: Request, devices: tuple[int, ...]) -> Lease | None:
        cards = tuple(number for slot in devices for number in self._on[slot])
        lease = self._real.lease(Request(gpus=len(cards)), cards)
        self._follow()
        return lease

    def drop_unused_waiter(self) -> None:
        self._real.drop_unused_waiter()
        self.waiter = self._real.waiter

    def apply_settings(self, rows: Iterable[tuple[str, bool, int | None, str | None]]) -> None:
        """Nobody decides about slots of a run."""

    def close(self) -> None:
        self._real.close()


def _cards_of(name: str, devices: tuple[Device, ...]) -> tuple[int, ...]:
    """The cards that a device string means, each once."""
    parts = [part.strip() for part in name.split(",")]
    found = [d.number for part in parts if part for d in devices if is_named(d, (part,))]
    return tuple(dict.fromkeys(found))


def slot_cards(
    names: Sequence[str],
    settings: Settings,
    tag_base: int,
    order: str = LOWEST,
    tell: Callable[[str], None] = lambda text: None,
) -> SlotGpus | MonitoredSlots:
    """The slots of a run, on cards of this host where the names mean some."""
    opaque = SlotGpus(names, order)
    if settings.devices or not has_driver():
        return opaque
    # Inside a job, its cards are leased already, and to us as well.
    held = os.environ.get("STOKER_GPU_UUIDS", "").split(",")
    from stoker.daemon.gpus.monitored_gpus import MonitoredGpus
    from stoker.devices.nvml_client import sample_once

    real = MonitoredGpus(tag_base, settings.leases, settings.gpus_by_uuid, held)
    real.update(sample_once(), {})
    if real.trouble is not None:
        tell(f"the GPUs cannot be leased, so others may be on them: {real.trouble}")
        return opaque
    watched = MonitoredSlots(names, real, order)
    return watched if watched.has_cards else opaque
