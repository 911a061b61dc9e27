"""GPUs that follow the driver, through the driver process.

GPUs with other processes are avoided. A GPU is used again only when the driver shows that the last
job's processes are gone (ended_attempts.py), and not at all after a hardware error (quarantine.py).
Leases are in gpu_leases.py, the memory of jobs in memory_watch.py, MPS in share_servers.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

from stoker.engine.daemon.gpus.ended_attempts import EndedAttempts
from stoker.engine.daemon.gpus.gpu_file import NOT_NAMED
from stoker.engine.daemon.gpus.gpu_leases import GpuLeases
from stoker.engine.daemon.gpus.gpu_usage import GpuUse, UsageMeters
from stoker.engine.daemon.gpus.gpus import ChangingGpus
from stoker.engine.daemon.gpus.memory_actions import MemoryAction
from stoker.engine.daemon.gpus.memory_watch import POLL_SECONDS, MemoryWatch
from stoker.engine.daemon.gpus.outside_demands import OutsideDemands
from stoker.engine.daemon.gpus.process_owners import leased_on, mps_servers, owners, user_name
from stoker.engine.daemon.gpus.share_servers import ShareSession, find_servers
from stoker.engine.devices.discovery import as_device
from stoker.engine.devices.leases.lease import Lease
from stoker.engine.gpus.occupancy import Occupancy, device_state, occupancy_of
from stoker.engine.gpus.sample import GpuSample, Sample
from stoker.engine.model import MPS, Device, DeviceState, Request, RunningJob
from stoker.engine.policy.eligible import is_named
from stoker.engine.policy.preemption import OutsideDemand

_POLL_SECONDS = 0.05
# An older sample is refreshed before a job starts: other processes come and go.
_FRESH_SECONDS = 1.0

_CLEARING = "clearing"
_CHECKING = "being checked"
_MPS_STARTS = "waits for MPS to start"
_BRIEF = (_CLEARING, _CHECKING, _MPS_STARTS)


class MonitoredGpus(ChangingGpus):
    """The GPUs that the driver reports."""

    def __init__(
        self,
        tag_base: int,
        use_leases: bool,
        by_uuid: bool,
        inherited_uuids: Iterable[str] = (),
        *,
        share: str = "",
        mps_idle: float = 30.0,
    ) -> None:
        super().__init__(())
        self._user = user_name(os.getuid())
        self._tag_base = tag_base
        self._use_leases = use_leases
        self._by_uuid = by_uuid
        self._numbers: dict[str, int] = {}
        self._samples: dict[int, GpuSample] = {}
        self._occupancy: dict[int, Occupancy] = {}
        self._meters = UsageMeters(tag_base)
        self._ended = EndedAttempts(tag_base)
        self._settings: dict[str, tuple[bool, int | None]] = {}  # by UUID: drained, slots
        self._gpu_file_slots: dict[str, int] | None = None  # by name; None: all GPUs are used
        self.problem: str | None = None
        self.leases = GpuLeases(use_leases, inherited_uuids)
        self._seen_at = float("-inf")
        self._needs_sample = False
        self._memory = MemoryWatch(self.leases.groups)
        self._memory_actions: list[MemoryAction] = []
        self._demands = OutsideDemands(use_leases)
        self.servers = find_servers(mps_idle)
        self._share = share  # of GPUs without a setting of their own
        self._shares: dict[str, str] = {}  # by UUID
        self._other_holders: dict[int, str] = {}  # device: another user who holds a lease

    # -- samples and settings ------------------------------------------------------------------

    def update(self, sample: Sample, live: Mapping[int, RunningJob]) -> bool:
        """Apply a sample; True if that may change a decision."""
        before = (self.devices, self.states)
        self.leases.new_sample(sample.at)
        self._other_holders.clear()
        self._seen_at, self._needs_sample = sample.at, False
        if sample.gpus is None:
            self.problem = sample.error
        else:
            self.problem = None
            gpus = [gpu._replace(number=self._number(gpu)) for gpu in sample.gpus]
            self._samples = {gpu.number: gpu for gpu in gpus}
            self.devices = tuple(self._device(gpu) for gpu in gpus)
            # The driver may still list a process that is dead; earlier samples know its attempt.
            known = self._meters.attempts()
            attempts, users = owners(gpus, self._tag_base, known)
            servers = mps_servers(users)
            self._memory.begin_sample(live)
            for gpu, device in zip(gpus, self.devices, strict=True):
                leased = leased_on(gpu, users, os.getpid()) if self._use_leases else set()
                occupancy = occupancy_of(gpu, attempts, users, leased, servers)
                self._occupancy[gpu.number] = occupancy
                self._ended.check(gpu, occupancy, sample.at)
                self.quarantine.check(gpu)
                self._meters.add_sample(gpu, occupancy, live, sample.at)
                self._memory_actions += self._memory.observe(
                    gpu, device, occupancy, live, sample.at
                )
            self._ended.keep_only(self._samples.keys())
            self.quarantine.add_faults(sample.faults)
        self._find_states(live)
        is_needed = self._demands.update(self.devices, self._occupancy, live.values(), sample.at)
        return is_needed or (self.devices, self.states) != before

    def demands(self) -> list[OutsideDemand]:
        return self._demands.found

    def remember(self, devices: Iterable[Device]) -> None:
        """Keep the device numbers of the last daemon: running jobs are recorded with them."""
        self._numbers.update((device.uuid, device.number) for device in devices if device.pci)

    def _number(self, gpu: GpuSample) -> int:
        """A number that stays when the driver renumbers its GPUs: jobs are recorded with it."""
        known = self._numbers.get(gpu.uuid)
        if known is None:
            taken = set(self._numbers.values())
            known = gpu.number if gpu.number not in taken else max(taken) + 1
            self._numbers[gpu.uuid] = known
        return known

    def attempt_ended(self, job: RunningJob, now: float) -> None:
        """Close its GPUs until the driver confirms that its processes are gone."""
        self._ended.add(job, self._meters.pids(job.attempt), self._occupancy, now)
        for number in job.devices:
            state = self.states.get(number, DeviceState())
            self.states = {
                **self.states,
                number: state._replace(closed_reason=_CLEARING, closes_briefly=True),
            }

    def apply_settings(self, rows: Iterable[tuple[str, bool, int | None, str | None]]) -> None:
        """Apply the settings from the database: (uuid, drained, slots, quarantine)."""
        before = (self._settings, self.quarantine.reasons)
        rows = list(rows)
        self._settings = {uuid: (drained, slots) for uuid, drained, slots, _ in rows}
        self.quarantine.apply({uuid: why for uuid, _, _, why in rows if why is not None})
        if (self._settings, self.quarantine.reasons) != before:
            self._apply_changes()

    def use_only(self, names: dict[str, int] | None) -> None:
        """Use only these GPUs, with this many slots each; None uses all."""
        self._gpu_file_slots = names
        self._apply_changes()

    def _apply_changes(self) -> None:
        """Apply changed settings at once, without waiting for the next sample."""
        self.devices = tuple(self._device(self._samples[device.number]) for device in self.devices)
        self.states = {
            device.number: self._complete(self.states[device.number], device)
            for device in self.devices
        }

    def next_poll(self, now: float) -> float | None:
        """When to request a sample earlier than usual; None if that is not needed."""
        soon = self._needs_sample or self.leases.has_waited_lease or self._ended.are_recent(now)
        if soon:
            return now + _POLL_SECONDS
        return now + POLL_SECONDS if self._memory.is_pending else None

    def lost(self) -> set[int]:
        """Devices that the driver has lost; jobs on them cannot continue."""
        return {gpu.number for gpu in self._samples.values() if gpu.error is not None}

    def _find_states(self, live: Mapping[int, RunningJob]) -> None:
        self.states = {
            device.number: self._complete(
                device_state(device, self._occupancy[device.number], live.values(), None), device
            )._replace(
                takes_followers=self._memory.takes_followers(device.number, live),
                is_saturated=self._memory.is_saturated(device.number),
            )
            for device in self.devices
        }

    def _complete(self, state: DeviceState, device: Device) -> DeviceState:
        """The state with why the device is closed, and whether jobs can use MPS on it."""
        occupancy = self._occupancy[device.number]
        other = self._other_holders.get(device.number) or occupancy.other_user(self._user)
        why = self._closed_reason(device)
        return state._replace(
            closed_reason=why,
            closes_briefly=why in _BRIEF,
            other_user=other,
            mps_problem=self.servers.problem(device.uuid),
            mps_starts=self.servers.is_starting(device.uuid),
        )

    def _closed_reason(self, device: Device) -> str | None:
        drained, _ = self._settings.get(device.uuid, (False, None))
        quarantine = self.quarantine.reasons.get(device.uuid)
        if self.problem is not None:
            return self.problem
        if quarantine is not None:
            return f"in quarantine: {quarantine}"
        if self._samples[device.number].error is not None:
            return self._samples[device.number].error
        if drained:
            return "drained"
        if self._gpu_file_slots is not None and not is_named(device, self._gpu_file_slots):
            return NOT_NAMED
        if self._ended.occupy(device.number):
            return _CLEARING
        if self.servers.is_starting(device.uuid):
            return _MPS_STARTS
        return self.leases.refusals.get(device.number)

    def _device(self, gpu: GpuSample) -> Device:
        _, slots = self._settings.get(gpu.uuid, (False, None))
        device = as_device(gpu, slots or 1, self._by_uuid)
        device = device._replace(share=self._shares.get(gpu.uuid, self._share))
        if self._gpu_file_slots is not None:
            for name, count in self._gpu_file_slots.items():
                if is_named(device, (name,)):
                    return device._replace(slots=count)
        return device

    def take_use(self, attempt: int) -> GpuUse:
        return self._meters.take(attempt)

    def take_memory_actions(self) -> list[MemoryAction]:
        actions, self._memory_actions = self._memory_actions, []
        return actions

    def memory_learned(self, profile: int, peak: int) -> None:
        self._memory.learned(profile, peak)

    @property
    def is_measuring(self) -> bool:
        return self._memory.is_pending

    def all_resumed(self) -> None:
        self._memory.resumed()

    # -- how jobs share a GPU ------------------------------------------------------------------

    def apply_shares(self, shares: Mapping[str, str]) -> None:
        if shares != self._shares:
            for uuid in self._shares.keys() | shares.keys():
                if shares.get(uuid, self._share) != MPS:
                    self.servers.leave(uuid)
            self._shares = dict(shares)
            self._apply_changes()

    def join_server(self, request: Request, device: int) -> ShareSession | None:
        (shared,) = self._devices((device,))
        other = self.leases.other_user(shared)
        session = None
        if other is not None:
            self._other_holders[device] = other
        else:
            session = self.servers.join(shared.uuid, request)
        if session is None:
            self._apply_changes()
        return session

    def poll_servers(self, now: float) -> bool:
        has_changed = self.servers.poll(now)
        if has_changed:
            self._apply_changes()
        return has_changed

    # -- leases --------------------------------------------------------------------------------

    def lease(self, request: Request, devices: tuple[int, ...]) -> Lease | None:
        if not devices:
            return Lease([])
        self.leases.was_requested = True
        if not self._is_fresh():
            return None
        leased = self._devices(devices)
        unleased = {device.uuid: self._unleased(device) for device in leased}
        lease = self.leases.take(request, leased, unleased)
        if lease is None:
            self._apply_changes()
        return lease

    def _is_fresh(self) -> bool:
        """Whether the last sample is recent; if not, close the GPUs until there is a new one."""
        if time.monotonic() - self._seen_at <= _FRESH_SECONDS:
            return True
        self._needs_sample = True
        self.states = {
            number: state._replace(closed_reason=_CHECKING, closes_briefly=True)
            for number, state in self.states.items()
        }
        return False

    def _unleased(self, device: Device) -> int:
        """The memory of other processes without a lease."""
        number = device.number
        return self.states[number].unreserved_bytes - self._occupancy[number].leased

    def _devices(self, numbers: tuple[int, ...]) -> list[Device]:
        return [device for device in self.devices if device.number in numbers]

    def drop_unused_waiter(self) -> None:
        self.leases.drop_unused(self._are_open)

    def _are_open(self, uuids: set[str]) -> bool:
        states = [self.states[d.number] for d in self.devices if d.uuid in uuids]
        return all(
            state.closed_reason is None and not state.has_other_processes for state in states
        )

    def take_waited_lease(self) -> bool:
        if not self.leases.take_waited():
            return False
        if self.leases.has_waited_lease:
            # The last holder may still be freeing its memory: wait for a new sample.
            self._seen_at = float("-inf")
        self._apply_changes()
        return True

    def close(self) -> None:
        self.leases.close()
        self.servers.close()
