"""The use of a GPU: by attempts of Stoker, other processes, and processes that are not listed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from stoker.engine.gpus.sample import GpuSample
from stoker.engine.model import Device, DeviceState, RunningJob
from stoker.engine.policy.placement import amount_of
from stoker.record import Record
from stoker.text.sizes import format_size

# Bytes that the process list may lack: CUDA contexts, rounding, memory of the driver.
_UNLISTED_TOLERANCE = 512 << 20


class OtherProcess(Record):
    """A process on a GPU that Stoker did not start. `pid` is 0 if the process is not listed."""

    pid: int
    memory: int
    user: str
    compute: bool
    leased: bool = False  # it belongs to a job, of any user, that holds a lease


class Occupancy(Record):
    """The memory of a GPU by owner. `ours` maps attempts of this queue to the bytes they use."""

    ours: dict[int, int]
    other_processes: tuple[OtherProcess, ...]
    other_bytes: int  # bytes that attempts of this queue do not use
    server_bytes: int = 0  # of these, those of our MPS servers
    computing: frozenset[int] | None = None  # attempts that computed; None: not reported

    @property
    def has_other_processes(self) -> bool:
        """Whether other processes compute here.

        A display server does not count, and neither do jobs with a lease: the lease already
        accounts for them.
        """
        return any(process.compute and not process.leased for process in self.other_processes)

    @property
    def leased(self) -> int:
        """Bytes used by jobs of other queues that hold a lease."""
        return sum(process.memory for process in self.other_processes if process.leased)

    @property
    def has_hidden(self) -> bool:
        """Whether memory is used by processes that the driver does not list."""
        return any(not process.pid for process in self.other_processes)

    def other_user(self, own: str) -> str | None:
        """Another user than `own` who computes here; None if there is none."""
        for process in self.other_processes:
            if process.compute and process.user != own:
                return "a hidden process" if process.user == "?" else process.user
        return None

    @property
    def users(self) -> tuple[str, ...]:
        """The users of the other processes, in order; without those that are unknown."""
        return tuple(sorted({one.user for one in self.other_processes if one.user != "?"}))

    @property
    def note(self) -> str | None:
        """The other processes that compute here, in words; None if there are none."""
        return (
            "; ".join(describe(process) for process in self.other_processes if process.compute)
            or None
        )


def occupancy_of(
    gpu: GpuSample,
    attempts: Mapping[int, int],
    users: Mapping[int, str],
    leased: Collection[int] = (),
    servers: Collection[int] = (),
) -> Occupancy:
    """Assign the processes of a GPU to their owners.

    `attempts` maps PIDs to attempts of this queue, `users` maps other PIDs to user names, and
    `leased` holds the PIDs of other jobs with a lease, `servers` those of our MPS servers: their
    memory counts as used, but they are not other processes.
    """
    ours: dict[int, int] = {}
    others = []
    listed = server_bytes = 0
    for process in gpu.processes:
        memory = process.memory or 0
        listed += memory
        attempt = attempts.get(process.pid)
        if attempt is not None:
            ours[attempt] = ours.get(attempt, 0) + memory
        elif process.pid in servers:
            server_bytes += memory
        else:
            user = users.get(process.pid, "?")
            is_leased = process.pid in leased
            others.append(OtherProcess(process.pid, memory, user, process.compute, is_leased))
    hidden = gpu.used - listed
    if hidden > _UNLISTED_TOLERANCE and not any(p.memory is None for p in gpu.processes):
        others.append(OtherProcess(0, hidden, "?", True))
    other_bytes = max(0, gpu.used - sum(ours.values()))
    computing = (
        None
        if gpu.computing is None
        else frozenset(attempts[pid] for pid in gpu.computing if pid in attempts)
    )
    return Occupancy(ours, tuple(others), other_bytes, server_bytes, computing)


def device_state(
    device: Device, occupancy: Occupancy, running: Iterable[RunningJob], closed_reason: str | None
) -> DeviceState:
    """Return the state of a device for the policy, apart from the reservations of running jobs."""
    excess = 0
    for job in running:
        if device.number in job.devices:
            # Memory that a job uses beyond its request counts as used.
            excess += max(0, occupancy.ours.get(job.attempt, 0) - amount_of(job.request, device))
    return DeviceState(
        unreserved_bytes=occupancy.other_bytes + excess,
        has_other_processes=occupancy.has_other_processes,
        closed_reason=closed_reason,
        note=occupancy.note,
        other_users=occupancy.users,
        mps_bytes=occupancy.server_bytes,
    )


def describe(process: OtherProcess) -> str:
    size = format_size(process.memory)
    if not process.pid:
        return f"a hidden process has {size}"
    return f"{process.user} (pid {process.pid}) has {size}"
