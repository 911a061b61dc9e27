"""Host room: the cores, memory, counters and CPU slots that jobs leave free, now and later.

A job starts only if its whole claim fits, so claims never sum to more than the host has. Room can
be reserved for a job that does not fit, as GPUs are (EASY backfill): a later job may use it only if
it ends before the reservation is due, or if it leaves enough for that job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from stoker.engine.model import Request, RunningJob
from stoker.engine.policy.host_share import (
    CORES,
    CPU_SLOTS,
    MILLI,
    HostClaim,
    HostLimits,
    claim_of,
    claim_of_running,
)
from stoker.engine.policy.placement import likely_end_of_running
from stoker.engine.profiles.estimates import NO_ESTIMATES, Estimates
from stoker.record import Record

_UNKNOWN = float("inf")


class _Holder(Record):
    """A job that runs or starts, and what it holds."""

    end: float  # likely
    since: float
    claim: HostClaim
    devices: tuple[int, ...]


class _Kept:
    """A reservation: what jobs that stay longer than `until` may still take."""

    __slots__ = ("claim", "left", "until")

    def __init__(self, claim: HostClaim, until: float | None, left: HostClaim) -> None:
        self.claim = claim
        self.until = until  # None: unknown
        self.left = left

    def stays(self, end: float | None) -> bool:
        """Whether a job that ends by `end` may still run when the reservation is due."""
        return end is None or self.until is None or end > self.until


class HostRoom:
    """The room on the host of one decision, with running jobs, planned starts and reservations."""

    def __init__(
        self,
        now: float,
        limits: HostLimits,
        running: Iterable[RunningJob],
        estimates: Estimates = NO_ESTIMATES,
    ) -> None:
        self.now = now
        self.totals = limits.totals()
        self.free = dict(self.totals)
        self._limits = limits
        self._estimates = estimates
        self._claims: dict[Request, HostClaim] = {}
        self._running: list[tuple[RunningJob, HostClaim]] = []
        self._started: list[_Holder] = []
        self._kept: list[_Kept] = []
        self._wanted: HostClaim | None = None  # to be reserved when another job would fit
        known: tuple[Request | None, HostClaim] = (None, {})
        for job in running:
            if known[0] is not job.request:  # most jobs share one request
                known = (job.request, self.claim_of(job.request))
            claim = known[1]
            if job.cpus is not None and claim.get(CORES, job.cpus) != job.cpus * MILLI:
                claim = claim_of_running(job, limits)
            self._running.append((job, claim))
            for name, amount in claim.items():
                self.free[name] = self.free.get(name, 0) - amount

    def claim_of(self, request: Request) -> HostClaim:
        known = self._claims.get(request)
        if known is None:
            known = self._claims[request] = claim_of(request, self._limits)
        return known

    @property
    def has_room(self) -> bool:
        """Whether any job could start: every job needs a part of a core, if cores are counted."""
        return self.free.get(CORES, 1) > 0

    @property
    def has_cpu_slot(self) -> bool:
        return self.has_room and self.free[CPU_SLOTS] > 0

    def is_possible(self, claim: HostClaim) -> bool:
        """Whether the claim would fit on the idle host. CPU slots may be added at any time."""
        return all(
            amount <= self.totals.get(name, 0)
            for name, amount in claim.items()
            if name != CPU_SLOTS
        )

    def fits(self, claim: HostClaim) -> bool:
        """Whether the claim fits now, if reservations are ignored."""
        free = self.free
        return all(amount <= free.get(name, 0) for name, amount in claim.items())

    def lacks(self, claim: HostClaim) -> list[str]:
        """Return the resources of which too little is free."""
        return [name for name, amount in claim.items() if amount > self.free.get(name, 0)]

    def holds(self, job: RunningJob, names: Collection[str]) -> bool:
        """Whether a running job has any of these resources."""
        return any(
            amount and name in names for name, amount in claim_of_running(job, self._limits).items()
        )

    def place(self, claim: HostClaim, end: float | None) -> bool:
        """Whether a job that ends by `end` (None: unknown) may start now."""
        return self.fits(claim) and not self.blockers(claim, end)

    def blockers(self, claim: HostClaim, end: float | None) -> list[str]:
        """Return the resources that are kept from a job that ends by `end`."""
        if self._wanted is not None:
            self._keep(self._wanted, self.fits_at(self._wanted), ())
            self._wanted = None
        return [
            name
            for kept in self._kept
            if kept.stays(end)
            for name, amount in claim.items()
            if amount > kept.left.get(name, amount)
        ]

    def take(
        self, claim: HostClaim, end: float | None, likely: float, devices: tuple[int, ...] = ()
    ) -> None:
        """Start a job that ends by `end` at the latest and likely at `likely`."""
        self._subtract(claim)
        self._started.append(_Holder(likely, self.now, claim, devices))
        for kept in self._kept:
            if kept.stays(end):
                for name in kept.left.keys() & claim.keys():
                    kept.left[name] -= claim[name]

    def _subtract(self, claim: HostClaim) -> None:
        for name, amount in claim.items():
            self.free[name] = self.free.get(name, 0) - amount

    # -- reservations --------------------------------------------------------------------------

    def reserve(self, claim: HostClaim) -> None:
        """Reserve the claim of a job that does not fit, from when it likely will."""
        if all(amount <= self.totals.get(name, 0) for name, amount in claim.items()):
            self._wanted = claim

    def reserve_with(self, claim: HostClaim, at: float | None, devices: Collection[int]) -> None:
        """Reserve the claim of a job that gets these devices at a time (None: unknown)."""
        if claim:
            self._keep(claim, _UNKNOWN if at is None else at, devices)

    @property
    def reserved_at(self) -> float | None:
        """When the last reservation is due; None if that is unknown."""
        if self._wanted is not None:
            at = self.fits_at(self._wanted)
            return None if at == _UNKNOWN else at
        return self._kept[-1].until if self._kept else None

    def _keep(self, claim: HostClaim, at: float, devices: Collection[int]) -> None:
        """Add a reservation from `at`, with what earlier reservations need then.

        If the time is unknown, the jobs on `devices` have ended by then and no others.
        """
        left = {name: self.free.get(name, 0) - amount for name, amount in claim.items()}
        for holder in self._holders():
            is_over = at != _UNKNOWN and max(holder.end, self.now) <= at
            if is_over or not set(devices).isdisjoint(holder.devices):
                for name in left.keys() & holder.claim.keys():
                    left[name] += holder.claim[name]
        for kept in self._kept:
            for name in left.keys() & kept.claim.keys():
                left[name] -= kept.claim[name]
        left = {name: max(0, amount) for name, amount in left.items()}
        self._kept.append(_Kept(claim, None if at == _UNKNOWN else at, left))

    def fits_at(self, claim: HostClaim) -> float:
        """Return when the claim likely fits; infinite if that is unknown."""
        if self.fits(claim):
            return self.now
        free = dict(self.free)
        for holder in sorted(self._holders(), key=lambda one: (one.end, one.since)):
            for name, amount in holder.claim.items():
                free[name] += amount
            if all(amount <= free.get(name, 0) for name, amount in claim.items()):
                return max(holder.end, self.now)
        return _UNKNOWN

    def _holders(self) -> list[_Holder]:
        running = [
            _Holder(
                likely_end_of_running(job, self.now, self._estimates),
                job.started,
                claim,
                job.devices,
            )
            for job, claim in self._running
        ]
        return [*running, *self._started]
