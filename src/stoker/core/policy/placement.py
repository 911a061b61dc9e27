"""The room on the devices while one decision is made: what fits where, and when more will.

Every claim is an amount of a device. A job that asks for memory claims so many bytes; one that asks
for nothing claims a slot, which is the device divided by its slots, normally all of it. Where the
memory of a device is unknown, a slot counts as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stoker.core.model import Device, DeviceState, Request, RunningJob
from stoker.core.profiles.estimates import NO_ESTIMATES, Estimates

_OPEN = DeviceState()


class DeviceRoom:
    """What is left of one device."""

    __slots__ = ("device", "free", "has_strangers", "is_brief", "is_closed", "jobs", "total")

    def __init__(self, device: Device, state: DeviceState) -> None:
        self.device = device
        self.total = capacity(device)
        self.free = max(0, self.total - state.foreign) if device.memory else self.total
        self.has_strangers = state.has_strangers
        self.is_closed = state.closed is not None
        self.is_brief = state.is_brief
        self.jobs: list[tuple[float, float, int]] = []  # (end, since, amount) of what runs here

    def fits(self, amount: int) -> bool:
        if self.is_closed:
            return False
        if amount >= self.total:  # all of it: nobody else may be here, however little they use
            return not self.jobs and not self.has_strangers
        return amount <= self.free

    def take(self, amount: int, end: float, since: float) -> None:
        self.free -= amount
        self.jobs.append((end, since, amount))

    def can_open(self, amount: int) -> bool:
        """Whether it would fit if our own jobs left. To keep others off would be no use if not."""
        if self.is_brief:  # what is being cleared away looks like anything
            return True
        if self.is_closed or (amount >= self.total and self.has_strangers):
            return False
        whole = amount >= self.total
        return whole or self.free + sum(taken for _, _, taken in self.jobs) >= amount

    def opens_at(self, amount: int, now: float) -> tuple[float, float]:
        """(when it will fit, since when that is awaited), both infinite when nobody can know."""
        if self.fits(amount) or (self.is_brief and not self.jobs):
            return now, float("-inf")
        jobs = sorted(self.jobs)
        if amount >= self.total:
            if jobs and not self.has_strangers:
                return max(jobs[-1][0], now), jobs[-1][1]
            return float("inf"), float("inf")
        free = self.free
        for end, since, taken in jobs:
            free += taken
            if free >= amount:
                return max(end, now), since
        return float("inf"), float("inf")


def capacity(device: Device) -> int:
    return device.memory or device.slots


def amount_of(request: Request, device: Device) -> int:
    """What a job with this request claims of the device."""
    if request.exclusive:
        return capacity(device)
    if request.memory is not None:
        return request.memory
    return capacity(device) // device.slots


def is_eligible(request: Request, device: Device) -> bool:
    """Whether the device, if it were idle, would do for one of the job's GPUs."""
    if request.memory is not None and request.memory > device.memory:
        return False
    if request.min_memory is not None and request.min_memory > device.memory:
        return False
    if request.model is not None and request.model.lower() not in device.model.lower():
        return False
    return not request.ids or is_named(device, request.ids)


def is_named(device: Device, names: Iterable[str]) -> bool:
    """Whether one of the names means this device: an index, a UUID, or the start of one."""
    return any(
        name in (device.visible, str(device.number))
        or (len(name) > 4 and device.uuid.lower().startswith(name.lower()))
        for name in names
    )


class DevicePool:
    def __init__(
        self,
        now: float,
        devices: Iterable[Device],
        running: Iterable[RunningJob],
        states: Mapping[int, DeviceState],
        estimates: Estimates = NO_ESTIMATES,
    ) -> None:
        self.now = now
        self.rooms = {d.number: DeviceRoom(d, states.get(d.number, _OPEN)) for d in devices}
        self._possible: dict[Request, bool] = {}
        self._kept: dict[int, int] = {}  # device: what a job that stays longer may use of it
        self._kept_until: float | None = None
        for job in running:
            for number in job.devices:
                room = self.rooms.get(number)
                if room is not None:
                    amount = amount_of(job.request, room.device)
                    room.take(amount, likely_end(job, now, estimates), job.started)

    def is_possible(self, request: Request) -> bool:
        """Whether the job could start here if all devices were idle and open."""
        known = self._possible.get(request)
        if known is None:
            able = sum(1 for room in self.rooms.values() if is_eligible(request, room.device))
            known = self._possible[request] = able >= request.gpus
        return known

    @property
    def has_room(self) -> bool:
        return any(room.free > 0 and not room.is_closed for room in self.rooms.values())

    def place(self, request: Request, end: float | None) -> tuple[int, ...] | None:
        """The devices for a job that is over by `end`; None if it has to wait."""
        return self._place(request, self._kept if self._stays(end) else {})

    def _stays(self, end: float | None) -> bool:
        """Whether a job would still be there when the reservation is due."""
        return end is None or self._kept_until is None or end > self._kept_until

    def would_fit(self, request: Request) -> bool:
        """Whether only a reservation is in its way."""
        return self._place(request, {}) is not None

    def _place(self, request: Request, kept: Mapping[int, int]) -> tuple[int, ...] | None:
        # Emptiest first: cards are filled before any is shared. Then as they are listed.
        avoided = self._avoided(request) if request.avoid else ()
        found = []
        for place, (number, room) in enumerate(self.rooms.items()):
            if room.free <= 0:
                continue
            amount = amount_of(request, room.device)
            if (
                room.fits(amount)
                and (number not in kept or amount <= kept[number])
                and number not in avoided
                and is_eligible(request, room.device)
            ):
                is_other = bool(request.prefer) and not is_named(room.device, request.prefer)
                found.append((is_other, -room.free / room.total, place, number))
        if len(found) < request.gpus:
            return None
        found.sort()
        return tuple(sorted(number for _, _, _, number in found[: request.gpus]))

    def _avoided(self, request: Request) -> set[int]:
        """Cards to stay away from, unless without them too few are left."""
        if not request.avoid:
            return set()
        able = [room.device for room in self.rooms.values() if is_eligible(request, room.device)]
        avoided = {device.number for device in able if is_named(device, request.avoid)}
        return avoided if len(able) - len(avoided) >= request.gpus else set()

    def take(
        self, request: Request, devices: tuple[int, ...], end: float | None, likely: float
    ) -> None:
        """Put a job there that is over by `end` at the latest, and likely at `likely`."""
        stays = self._stays(end)
        for number in devices:
            room = self.rooms[number]
            amount = amount_of(request, room.device)
            room.take(amount, likely, self.now)
            if stays and number in self._kept:
                self._kept[number] -= amount

    def reserve(self, request: Request) -> tuple[tuple[int, ...], float | None]:
        """Keep the devices that will have room soonest; (devices, when or None if unknown).

        None at all if our own jobs are not what is in the way.

        Where no end is known, the device that is busy longest is the best guess there is, and a
        fixed one, so the same devices stay reserved from turn to turn.
        """
        times = []
        avoided = self._avoided(request)
        for number, room in self.rooms.items():
            amount = amount_of(request, room.device)
            may = number not in avoided and is_eligible(request, room.device)
            if may and room.can_open(amount):
                times.append((*room.opens_at(amount, self.now), number))
        if len(times) < request.gpus:
            return (), None
        times.sort()
        times = times[: request.gpus]
        at = max(when for when, _, _ in times)
        known = at != float("inf")
        self._kept_until = at if known else None
        for _, _, number in times:
            room = self.rooms[number]
            amount = amount_of(request, room.device)
            free = room.free
            if known:
                free += sum(taken for end, _, taken in room.jobs if max(end, self.now) <= at)
            self._kept[number] = max(0, free - amount)
        return tuple(number for _, _, number in times), self._kept_until


def likely_end(job: RunningJob, now: float, estimates: Estimates) -> float:
    """When a running job will be over: by its limit at the latest, else by its estimate.

    One that is past its usual time is given half as long again as it has run, and so on.
    """
    end = float("inf") if job.ends_by is None else job.ends_by
    seconds = estimates.seconds(job.family)
    if seconds is not None:
        usual = job.started + seconds
        end = min(end, usual if usual > now else now + (now - job.started) / 2)
    return end
