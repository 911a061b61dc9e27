"""Placement: which jobs fit on which devices, now and later.

Every job claims an amount of each of its devices: the bytes that it requested, or else one slot,
which is the memory of the device divided by its number of slots. If the memory of a device is
unknown, amounts are counted in slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stoker.engine.gpus.measured_group import LEAST_PART, most_members
from stoker.engine.model import MPS, TIME, Device, DeviceState, Request, RunningJob
from stoker.engine.policy.eligible import is_eligible, is_named
from stoker.engine.policy.share_mode import conflict_words, mode_of
from stoker.engine.policy.topology import Topology, topology_of
from stoker.engine.profiles.estimates import NO_ESTIMATES, Estimates
from stoker.engine.profiles.shared_speed import gains, most_together

_OPEN = DeviceState()
# The free part of a device without jobs that counts as all of it: the driver uses a little.
_ALMOST_ALL = 0.9


class DeviceRoom:
    """The free room on one device."""

    __slots__ = (
        "closes_briefly",
        "device",
        "free",
        "has_other_processes",
        "is_closed",
        "is_saturated",
        "is_vacated",
        "jobs",
        "measured",
        "mode",
        "most_measured",
        "of_profile",
        "state",
        "takes_followers",
        "total",
    )

    def __init__(self, device: Device, state: DeviceState) -> None:
        self.device = device
        self.state = state
        self.total = capacity(device)
        self.free = max(0, self.total - state.unreserved_bytes) if device.memory else self.total
        self.has_other_processes = state.has_other_processes
        self.is_closed = state.closed_reason is not None
        self.closes_briefly = state.closes_briefly
        self.takes_followers = state.takes_followers
        self.is_vacated = False  # a job on it was asked to give way
        self.jobs: list[tuple[float, float, int]] = []  # (likely end, start, amount) of each job
        self.measured = 0  # jobs without an estimate yet
        self.most_measured = most_members(device.memory)
        self.of_profile: dict[int, int] = {}  # jobs with `auto`, by profile
        self.is_saturated = state.is_saturated
        self.mode: str | None = None  # how its jobs share it; None without jobs

    def takes_follower(self, request: Request) -> bool:
        """Whether the job may start beside one whose memory is being measured."""
        return not self.is_closed and self._has_group and is_measured(request)

    @property
    def _has_group(self) -> bool:
        """Whether jobs are being measured that others may follow."""
        return 0 < self.measured < self.most_measured and self.takes_followers

    @property
    def has_room(self) -> bool:
        if self.is_closed:
            return False
        return self.free > 0 or self._has_group

    def amount_of(self, request: Request) -> int:
        """Return the amount that one more job takes.

        While the memory of jobs is being measured, the first of them takes all that is left of its
        slot, and the others share it.
        """
        if not is_measured(request):
            return amount_of(request, self.device)
        return 0 if self.measured else min(amount_of(request, self.device), max(0, self.free))

    def needed_by(self, request: Request) -> int:
        """Return the amount that has to be free for a job to start."""
        amount = amount_of(request, self.device)
        may_share = self.takes_followers and not self.has_other_processes and self.device.memory
        return int(amount * LEAST_PART) if may_share and is_measured(request) else amount

    def add(self, request: Request, end: float, since: float, mode: str = TIME) -> int:
        """Place a job; returns the amount that it takes."""
        amount = self.amount_of(request)
        if is_measured(request):
            self.measured += 1
        if request.profile:
            self.of_profile[request.profile] = self.of_profile.get(request.profile, 0) + 1
        self.take(amount, end, since, mode)
        return amount

    def fits(self, amount: int) -> bool:
        if self.is_closed:
            return False
        if amount >= self.total:  # the whole device: no other process, however small, may use it
            return not self.jobs and not self.has_other_processes
        return amount <= self.free

    def take(self, amount: int, end: float, since: float, mode: str = TIME) -> None:
        self.mode = mode
        self.free -= amount
        self.jobs.append((end, since, amount))

    def mode_of(self, request: Request) -> str:
        """How a job with this request would share the device."""
        return mode_of(request, self.device, self.state)

    def conflict(self, mode: str) -> str | None:
        """Why a job of this mode cannot start beside those on the device; None if it can."""
        return conflict_words(mode, self.mode, self.state.other_user)

    def could_fit(self, amount: int) -> bool:
        """Whether `amount` would fit without running jobs; if not, a reservation is useless."""
        if self.closes_briefly:  # while processes are being ended, the use of the device is unknown
            return True
        if self.is_closed or (amount >= self.total and self.has_other_processes):
            return False
        whole = amount >= self.total
        return whole or self.free + sum(taken for _, _, taken in self.jobs) >= amount

    def fits_at(self, amount: int, now: float) -> tuple[float, float]:
        """Return when `amount` will fit, and when the job that makes room then was started.

        Both are infinite if that is unknown.
        """
        if self.fits(amount) or (self.closes_briefly and not self.jobs):
            return now, float("-inf")
        jobs = sorted(self.jobs)
        if amount >= self.total:
            if jobs and not self.has_other_processes:
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
    """Return the amount of the device that a job with this request claims."""
    if request.exclusive:
        return capacity(device)
    if request.memory is not None:
        # The margin of an estimate does not exclude a GPU on which the job fits without it.
        return min(request.memory, capacity(device)) if request.is_auto else request.memory
    return capacity(device) // device.slots


def is_measured(request: Request) -> bool:
    """Whether the memory of the job is measured while it runs: `auto` without an estimate."""
    return (
        request.is_auto
        and request.memory is None
        and request.profile != 0
        and request.gpus == 1
        and not request.exclusive
    )


class DevicePool:
    """The devices of one decision, with running jobs, planned starts and a reservation."""

    def __init__(
        self,
        now: float,
        devices: Sequence[Device],
        running: Iterable[RunningJob],
        states: Mapping[int, DeviceState],
        estimates: Estimates = NO_ESTIMATES,
    ) -> None:
        self.now = now
        self._topology = topology_of(devices)
        self.rooms = {d.number: DeviceRoom(d, states.get(d.number, _OPEN)) for d in devices}
        self._estimates = estimates
        self._possible: dict[Request, bool] = {}
        # Results since the last change, by request and whether the reservation counts: many
        # waiting jobs have equal requests.
        self._found: dict[tuple[Request, bool], tuple[int, ...] | None] = {}
        self._has_room: bool | None = None  # None: not known since the last change
        # By reserved device: the amount left for jobs that end after the reservation is due.
        self._kept: dict[int, int] = {}
        self._kept_modes: dict[int, str] = {}  # how the job of the reservation shares them
        self._kept_until: float | None = None
        # Jobs that are being measured last: they take what the others leave.
        for job in sorted(running, key=lambda job: is_measured(job.request)):
            for number in job.devices:
                room = self.rooms.get(number)
                if room is not None:
                    end = likely_end_of_running(job, now, estimates)
                    room.add(job.request, end, job.started, job.share or TIME)
                    room.is_vacated = room.is_vacated or job.gives_way

    def is_possible(self, request: Request) -> bool:
        """Whether a job with this request could start if all devices were idle and open."""
        known = self._possible.get(request)
        if known is None:
            able = sum(1 for room in self.rooms.values() if is_eligible(request, room.device))
            known = self._possible[request] = able >= request.gpus
        return known

    @property
    def has_room(self) -> bool:
        if self._has_room is None:
            self._has_room = any(room.has_room for room in self.rooms.values())
        return self._has_room

    def place(self, request: Request, end: float | None) -> tuple[int, ...] | None:
        """Return devices for a job that ends by `end` (None: unknown); None if it has to wait."""
        return self._place(request, self._stays(end))

    def _stays(self, end: float | None) -> bool:
        """Whether a job that ends by `end` may still run when the reservation is due."""
        return end is None or self._kept_until is None or end > self._kept_until

    def would_fit(self, request: Request) -> bool:
        """Whether the request fits if the reservation is ignored."""
        return self._place(request, False) is not None

    def _place(self, request: Request, keeps: bool) -> tuple[int, ...] | None:
        """`keeps`: whether the job must leave what is reserved."""
        key = (request, keeps and bool(self._kept))
        try:
            return self._found[key]
        except KeyError:
            found = self._found[key] = self._find(request, self._kept if keeps else {})
            return found

    def _find(self, request: Request, kept: Mapping[int, int]) -> tuple[int, ...] | None:
        # Emptiest devices first, so that jobs share one only if none is idle; then in list order.
        avoided = self._avoided(request) if request.avoid else ()
        found = []
        for place, (number, room) in enumerate(self.rooms.items()):
            if request.profile and self.gains_nothing(request, room):
                continue
            follows = number not in kept and room.takes_follower(request)
            if room.free <= 0 and not follows:
                continue
            amount = room.needed_by(request)
            mode = room.mode_of(request)
            if mode == MPS and room.state.mps_starts and is_eligible(request, room.device):
                return None  # in a moment; do not start MPS on another device meanwhile
            if (
                (follows or room.fits(amount))
                and not (request.preemptible and room.has_other_processes)
                and room.conflict(mode) is None
                and (number not in kept or self._leaves_kept(number, amount, mode))
                and number not in avoided
                and is_eligible(request, room.device)
            ):
                is_other = bool(request.prefer) and not is_named(room.device, request.prefer)
                free = room.free + room.state.mps_bytes  # a GPU with an idle MPS server is as good
                # Followers are spread, and join others only if no device has free room.
                used = room.measured if follows else -free / room.total
                found.append((is_other, used, place, number))
        if len(found) < request.gpus:
            return None
        if self._topology is not None:
            return self._best_connected(found, request.gpus, self._topology)
        found.sort()
        return tuple(sorted(number for _, _, _, number in found[: request.gpus]))

    def gains_nothing(self, request: Request, room: DeviceRoom) -> bool:
        """Whether one more job with `auto` on the device would not increase its throughput."""
        if not request.is_auto or request.gpus != 1:
            return False
        speeds = self._estimates.speeds.get(request.profile, {})
        count = room.of_profile.get(request.profile, 0)
        if room.is_saturated and room.jobs and (count or is_measured(request)):
            return not gains(speeds)
        limit = most_together(speeds) if count else None
        return limit is not None and count >= limit

    def _leaves_kept(self, number: int, amount: int, mode: str) -> bool:
        """Whether a job that still runs when the reservation is due leaves what is reserved."""
        return amount <= self._kept[number] and mode == self._kept_modes[number]

    def _best_connected(
        self, found: list[tuple[bool, float, int, int]], count: int, topology: Topology
    ) -> tuple[int, ...]:
        """Return `count` of the devices: of equally good ones, those that are connected best."""
        ranked = []
        for is_other, used, place, number in found:
            is_idle = not self.rooms[number].jobs and -used >= _ALMOST_ALL
            ranked.append(((is_other, -1.0 if is_idle else used), place, number))
        ranked.sort()
        last = ranked[count - 1][0]
        required = [number for rank, _, number in ranked if rank < last]
        equals = [number for rank, _, number in ranked if rank == last]
        idle = topology.mask(
            number for number, room in self.rooms.items() if not room.jobs and not room.is_closed
        )
        return tuple(sorted(topology.choose(required, equals, count, idle)))

    def _avoided(self, request: Request) -> set[int]:
        """Return the devices to avoid; none if too few others qualify."""
        if not request.avoid:
            return set()
        able = [room.device for room in self.rooms.values() if is_eligible(request, room.device)]
        avoided = {device.number for device in able if is_named(device, request.avoid)}
        return avoided if len(able) - len(avoided) >= request.gpus else set()

    def take(
        self, request: Request, devices: tuple[int, ...], end: float | None, likely: float
    ) -> None:
        """Place a job that ends by `end` at the latest and likely at `likely`."""
        stays = self._stays(end)
        self._has_room = None
        self._found.clear()
        for number in devices:
            room = self.rooms[number]
            amount = room.add(request, likely, self.now, room.mode_of(request))
            if stays and number in self._kept:
                self._kept[number] -= amount

    def keep(self, request: Request, devices: tuple[int, ...], likely: float) -> bool:
        """Keep devices, which are being vacated, for a job; False if it could not start there."""
        if len(devices) != request.gpus:
            return False
        for number in devices:
            room = self.rooms.get(number)
            if room is None or not is_eligible(request, room.device):
                return False
            amount = room.needed_by(request)
            is_coming = room.is_vacated or room.closes_briefly or room.fits(amount)
            if not is_coming or not room.could_fit(amount):
                return False
        self.take(request, devices, None, likely)
        return True

    def reserve(self, request: Request, not_before: float) -> tuple[tuple[int, ...], float | None]:
        """Reserve the devices that will have room soonest, from `not_before` on.

        Returns the devices, and when they have room (None: unknown). Returns no devices if the
        request would not fit even without the running jobs.

        If no end is known, the devices that were busy longest are reserved: that is the best
        guess, and it stays the same from tick to tick.
        """
        times = []
        avoided = self._avoided(request)
        for number, room in self.rooms.items():
            amount, mode = room.needed_by(request), room.mode_of(request)
            is_candidate = number not in avoided and is_eligible(request, room.device)
            if request.profile and self.gains_nothing(request, room):
                continue  # it has room, and waits for a job of its profile to end
            if mode == MPS and room.state.other_user is not None:
                continue
            if room.conflict(mode) is not None:
                amount = room.total  # all jobs of the other mode have to end
            if is_candidate and room.could_fit(amount):
                times.append((*room.fits_at(amount, self.now), number))
        if len(times) < request.gpus:
            return (), None
        times.sort()
        times = times[: request.gpus]
        self._found.clear()
        at = max(not_before, *(when for when, _, _ in times))
        known = at != float("inf")
        self._kept_until = at if known else None
        for _, _, number in times:
            room = self.rooms[number]
            amount = room.needed_by(request)
            free = room.free
            if known:
                free += sum(taken for end, _, taken in room.jobs if max(end, self.now) <= at)
            self._kept[number] = max(0, free - amount)
            self._kept_modes[number] = room.mode_of(request)
        return tuple(number for _, _, number in times), self._kept_until


def likely_end_of_running(job: RunningJob, now: float, estimates: Estimates) -> float:
    """Return when a running job likely ends: after its estimated duration or at its time limit.

    A job past its estimate is expected to run for half of its time so far again. Infinite if
    neither is known.
    """
    end = float("inf") if job.ends_by is None else job.ends_by
    seconds = estimates.seconds(job.profile)
    if seconds is not None:
        expected = job.started + seconds
        end = min(end, expected if expected > now else now + (now - job.started) / 2)
    return end
