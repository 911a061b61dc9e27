"""Who is on a card: our attempts, strangers, and memory that nobody admits to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from stoker.core.formats.durations import format_size
from stoker.core.gpus.sample import GpuSample
from stoker.core.model import Device, DeviceState, RunningJob
from stoker.core.policy.placement import amount_of
from stoker.core.record import Record

# Contexts, rounding and driver bookkeeping that the process list does not show.
_UNEXPLAINED = 512 << 20


class OtherProcess(Record):
    """Somebody on a card that Stoker did not put there. `pid` is 0 for one that cannot be seen."""

    pid: int
    memory: int
    user: str
    compute: bool
    leased: bool = False  # part of somebody's job that holds a lease


class Occupancy(Record):
    """A card's memory by owner. `ours` maps an attempt to what it has there."""

    ours: dict[int, int]
    strangers: tuple[OtherProcess, ...]
    foreign: int  # bytes that are not ours

    @property
    def has_strangers(self) -> bool:
        """Whether somebody else computes here.

        A display server does not count, nor do jobs that have a lease: that speaks for them.
        """
        return any(stranger.compute and not stranger.leased for stranger in self.strangers)

    @property
    def leased(self) -> int:
        """Bytes of those whose lease speaks for them."""
        return sum(stranger.memory for stranger in self.strangers if stranger.leased)

    @property
    def has_hidden(self) -> bool:
        """Whether there is memory that no listed process admits to."""
        return any(not stranger.pid for stranger in self.strangers)

    @property
    def note(self) -> str | None:
        return "; ".join(describe(one) for one in self.strangers if one.compute) or None


def occupancy_of(
    card: GpuSample,
    attempts: Mapping[int, int],
    users: Mapping[int, str],
    leased: Collection[int] = (),
) -> Occupancy:
    """Sort a card's processes.

    `attempts` has the PIDs that are ours, `users` names of the rest; `leased` those of them that
    are part of somebody's job with a lease.
    """
    ours: dict[int, int] = {}
    strangers = []
    listed = 0
    for process in card.processes:
        memory = process.memory or 0
        listed += memory
        attempt = attempts.get(process.pid)
        if attempt is not None:
            ours[attempt] = ours.get(attempt, 0) + memory
        else:
            user = users.get(process.pid, "?")
            is_leased = process.pid in leased
            strangers.append(OtherProcess(process.pid, memory, user, process.compute, is_leased))
    hidden = card.used - listed
    if hidden > _UNEXPLAINED and not any(p.memory is None for p in card.processes):
        strangers.append(OtherProcess(0, hidden, "?", True))
    return Occupancy(ours, tuple(strangers), max(0, card.used - sum(ours.values())))


def state_of(
    device: Device, seen: Occupancy, running: Iterable[RunningJob], closed: str | None
) -> DeviceState:
    """What the policy has to know of a card beside our own jobs' claims."""
    excess = 0
    for job in running:
        if device.number in job.devices:
            # One that took more than it was promised: the rest is not there for others.
            excess += max(0, seen.ours.get(job.attempt, 0) - amount_of(job.request, device))
    return DeviceState(seen.foreign + excess, seen.has_strangers, closed, seen.note)


def describe(stranger: OtherProcess) -> str:
    size = format_size(stranger.memory)
    if not stranger.pid:
        return f"a process that cannot be seen has {size}"
    return f"{stranger.user} (pid {stranger.pid}) has {size}"
