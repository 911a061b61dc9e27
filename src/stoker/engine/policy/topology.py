"""Which of several free GPUs a job gets: those that are connected best.

GPUs connected by NVLink come first, then GPUs of one NUMA node, then the order of the list. A job
with one GPU gets the one that is connected with the fewest other idle GPUs, so that connected
groups stay whole for jobs that need several (best fit).

The choice is only among GPUs that are equal otherwise (`--prefer`, room), so a job never starts
later because of it. Sets of GPUs are bit masks; a GPU has the bit of its place in the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb

from stoker.engine.model import Device
from stoker.record import Record

# All sets are compared if there are not more than this; else sets are grown from each GPU.
_MAX_SETS = 500


class Connections(Record):
    """How well a set of GPUs is connected; a larger one is better."""

    linked: int  # pairs connected by NVLink
    near: int  # pairs of the same NUMA node


class Topology:
    """The connections between the devices of one host."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._bits = {device.number: 1 << place for place, device in enumerate(devices)}
        by_uuid = {device.uuid: device.number for device in devices}
        self._linked = {
            device.number: self.mask(by_uuid[uuid] for uuid in device.links if uuid in by_uuid)
            for device in devices
        }
        nodes: dict[int, int] = {}
        for device in devices:
            if device.numa is not None:
                nodes[device.numa] = nodes.get(device.numa, 0) | self._bits[device.number]
        self._near = {
            device.number: 0
            if device.numa is None
            else nodes[device.numa] & ~self._bits[device.number]
            for device in devices
        }

    def mask(self, numbers: Iterable[int]) -> int:
        """Return a set of devices as a bit mask."""
        mask = 0
        for number in numbers:
            mask |= self._bits.get(number, 0)
        return mask

    def connections(self, numbers: Iterable[int]) -> Connections:
        """Return how well a set of devices is connected."""
        chosen = tuple(numbers)
        linked, near = self._counts(chosen, self.mask(chosen))
        return Connections(linked // 2, near // 2)

    def broken(self, numbers: Iterable[int], idle: int) -> tuple[int, int]:
        """Return how many links and NUMA pairs with other idle devices a choice breaks up."""
        chosen = tuple(numbers)
        return self._counts(chosen, idle & ~self.mask(chosen))

    def _counts(self, chosen: Iterable[int], others: int) -> tuple[int, int]:
        linked = near = 0
        for number in chosen:
            linked += (self._linked[number] & others).bit_count()
            near += (self._near[number] & others).bit_count()
        return linked, near

    def choose(
        self, required: Sequence[int], equals: Sequence[int], count: int, idle: int
    ) -> tuple[int, ...]:
        """Return `count` devices: all of `required`, the others from `equals`.

        `equals` are in list order; `idle`: the devices that no job uses.
        """
        missing = count - len(required)
        if missing == len(equals):
            return (*required, *equals)
        if comb(len(equals), missing) <= _MAX_SETS:
            # max returns the first of equally good sets, which is the first in list order.
            return max(
                ((*required, *some) for some in combinations(equals, missing)),
                key=lambda chosen: self._rating(chosen, idle),
            )
        sets = [self._grow((*required, first), equals, count, idle) for first in equals]
        sets.insert(0, (*required, *equals[:missing]))
        return max(sets, key=lambda chosen: self._rating(chosen, idle))

    def _grow(
        self, chosen: tuple[int, ...], equals: Sequence[int], count: int, idle: int
    ) -> tuple[int, ...]:
        """Add the device that is connected best with those chosen, until there are enough."""
        mask = self.mask(chosen)
        while len(chosen) < count:
            best = max(
                (number for number in equals if not mask & self._bits[number]),
                key=lambda number: self._rating_of_next(number, mask, idle),
            )
            chosen = (*chosen, best)
            mask |= self._bits[best]
        return chosen

    def _rating_of_next(self, number: int, mask: int, idle: int) -> tuple[int, int, int, int]:
        linked, near = self._linked[number], self._near[number]
        rest = idle & ~mask & ~self._bits[number]
        return (
            (linked & mask).bit_count(),
            (near & mask).bit_count(),
            -(linked & rest).bit_count(),
            -(near & rest).bit_count(),
        )

    def _rating(self, chosen: tuple[int, ...], idle: int) -> tuple[int, int, int, int]:
        linked, near = self._counts(chosen, self.mask(chosen))
        broken_links, broken_pairs = self.broken(chosen, idle)
        return linked, near, -broken_links, -broken_pairs


_last: tuple[Sequence[Device], Topology | None] = ((), None)


def topology_of(devices: Sequence[Device]) -> Topology | None:
    """Return the connections between devices; None if none are known.

    The devices of a host rarely change, so the last result is kept.
    """
    global _last
    known = _last  # web servers have several threads
    if known[0] is not devices:
        has_any = any(device.links or device.numa for device in devices)
        known = _last = (devices, Topology(devices) if has_any else None)
    return known[1]
