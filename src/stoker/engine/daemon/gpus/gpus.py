"""The GPUs as the loop sees them: devices, their states, and what jobs use of them.

The classes below are interfaces with defaults. fixed_gpus.py has GPUs that never change,
monitored_gpus.py those that follow the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stoker.engine.daemon.gpus.gpu_usage import NOTHING_SEEN, GpuUse
from stoker.engine.daemon.gpus.memory_actions import MemoryAction
from stoker.engine.daemon.gpus.quarantine import Quarantine
from stoker.engine.daemon.gpus.share_servers import ShareServers, ShareSession
from stoker.engine.devices.leases.lease import Lease
from stoker.engine.gpus.sample import Sample
from stoker.engine.model import Device, DeviceState, Request, RunningJob
from stoker.engine.policy.preemption import OutsideDemand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.engine.daemon.gpus.gpu_leases import GpuLeases


class Gpus:
    """The interface that the loop uses. GPUs without a driver need only `apply_settings`."""

    is_monitored = False
    servers = ShareServers("the GPU is simulated")

    def __init__(self, devices: tuple[Device, ...]) -> None:
        self.devices = devices
        self.states: dict[int, DeviceState] = {}
        self.quarantine = Quarantine()

    @property
    def in_order(self) -> tuple[Device, ...]:
        """The devices in the order in which placement tries them."""
        return self.devices

    def attempt_ended(self, job: RunningJob, now: float) -> None:
        """Note that an attempt has ended."""

    def take_use(self, attempt: int) -> GpuUse:
        """Return and forget the GPU use of an attempt that has ended."""
        return NOTHING_SEEN

    def memory_learned(self, profile: int, peak: int) -> None:
        """A job of this command profile succeeded with this peak of GPU memory."""

    def all_resumed(self) -> None:
        """No job is paused any more: recovery continued them."""

    def lease(self, request: Request, devices: tuple[int, ...]) -> Lease | None:
        """Lease devices host-wide; None if another process holds one of them."""
        return Lease([])

    def join_server(self, request: Request, device: int) -> ShareSession | None:
        """Let a job use a server of `servers`; None if it is not ready: the state says why."""
        return None

    def apply_shares(self, shares: Mapping[str, str]) -> None:
        """Apply the settings from the database: how jobs share a GPU, by UUID."""

    def drop_unused_waiter(self) -> None:
        """After a decision: stop waiting for a lease that no job needs any more."""

    def demands(self) -> list[OutsideDemand]:
        """Return the processes outside of this queue that need the devices of preemptible jobs."""
        return []

    def apply_settings(self, rows: Iterable[tuple[str, bool, int | None, str | None]]) -> None:
        """Apply the settings from the database: (uuid, drained, slots, quarantine)."""
        raise NotImplementedError

    def close(self) -> None:
        """Release leases and helper processes."""


class ChangingGpus(Gpus):
    """GPUs that follow the driver: the interface that `DriverMonitor` uses."""

    is_monitored = True
    problem: str | None  # why the driver does not report GPUs
    leases: GpuLeases

    def update(self, sample: Sample, live: Mapping[int, RunningJob]) -> bool:
        """Apply a sample; True if that may change a decision."""
        raise NotImplementedError

    def take_memory_actions(self) -> list[MemoryAction]:
        """Return what to do about the GPU memory of jobs, since the last call."""
        return []

    @property
    def is_measuring(self) -> bool:
        """Whether the memory of a job is being measured: samples should have a recent load."""
        return False

    def take_waited_lease(self) -> bool:
        """Take the lease that the waiter got; True if that may change a decision."""
        raise NotImplementedError

    def next_poll(self, now: float) -> float | None:
        """When to request a sample earlier than usual; None if that is not needed."""
        raise NotImplementedError

    def lost(self) -> set[int]:
        """Devices that the driver has lost; jobs on them cannot continue."""
        raise NotImplementedError

    def poll_servers(self, now: float) -> bool:
        """Look after `servers`; True if that may change a decision."""
        return False

    def use_only(self, names: dict[str, int] | None) -> None:
        """Use only these GPUs, with this many slots each; None uses all."""
        raise NotImplementedError
