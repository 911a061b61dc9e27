"""GPUs that follow the driver, through the driver process.

GPUs with other processes are avoided. A GPU is used again only when the driver shows that the last
job's processes are gone, and not at all after a hardware error (quarantine).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

from stoker.engine.daemon.gpus.gpu_file import NOT_NAMED
from stoker.engine.daemon.gpus.gpu_usage import GpuUse, UsageMeters
from stoker.engine.daemon.gpus.gpus import ChangingGpus
from stoker.engine.daemon.gpus.group_leases import GroupLeases
from stoker.engine.daemon.gpus.memory_actions import MemoryAction
from stoker.engine.daemon.gpus.memory_watch import POLL_SECONDS, MemoryWatch
from stoker.engine.daemon.gpus.outside_demands import OutsideDemands
from stoker.engine.daemon.gpus.process_owners import leased_on, mps_servers, owners, user_name
from stoker.engine.daemon.gpus.share_servers import ShareSession, find_servers
from stoker.engine.devices.discovery import as_device
from stoker.engine.devices.leases.holders import DeviceClaim
from stoker.engine.devices.leases.lease import Lease, Waiter, first_waiters, holders, try_take
from stoker.engine.gpus.measured_group import LEAST_PART
from stoker.engine.gpus.occupancy import Occupancy, device_state, occupancy_of
from stoker.engine.gpus.sample import GpuSample, Sample
from stoker.engine.model import MPS, Device, DeviceState, Request, RunningJob
from stoker.engine.policy.eligible import is_named
from stoker.engine.policy.placement import amount_of, capacity, is_measured
from stoker.engine.policy.preemption import OutsideDemand
from stoker.engine.supervisor.kill_processes import kill_attempt
from stoker.errors import Error
from stoker.record import Record

# How long a job that ended may still occupy GPU memory; then its processes are killed.
_CLEARING_SECONDS = 5.0
_POLL_SECONDS = 0.05
# An older sample is refreshed before a job starts: other processes come and go.
_FRESH_SECONDS = 1.0

_CLEARING = "clearing"
_CHECKING = "being checked"
_MPS_STARTS = "waits for MPS to start"
_BRIEF = (_CLEARING, _CHECKING, _MPS_STARTS)


def _with_reason(state: DeviceState, why: str | None) -> DeviceState:
    return state._replace(closed_reason=why, closes_briefly=why in _BRIEF)


class _EndedAttempt(Record):
    """An attempt that has ended and may still occupy GPU memory."""

    ended_at: float
    pids: set[int]
    had_unowned_memory: bool  # the GPU had memory without an owner before the attempt ended


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
        # GPUs that an enclosing job has leased already.
        self._inherited_uuids = frozenset(inherited_uuids)
        self._user = user_name(os.getuid())
        self._tag_base = tag_base
        self._use_leases = use_leases
        self._by_uuid = by_uuid
        self._numbers: dict[str, int] = {}
        self._samples: dict[int, GpuSample] = {}
        self._occupancy: dict[int, Occupancy] = {}
        self._meters = UsageMeters(tag_base)
        self._clearing: dict[int, dict[int, _EndedAttempt]] = {}  # device: attempt
        self._problems: dict[str, str | None] = {}  # by UUID, in the last sample
        self._ecc: dict[str, int] = {}  # error count by UUID, in the last sample
        self._lease_refusals: dict[int, str] = {}  # device: why it cannot be leased
        self._settings: dict[str, tuple[bool, int | None, str | None]] = {}
        self._gpu_file_slots: dict[str, int] | None = None  # by name; None: all GPUs are used
        self.problem: str | None = None
        self.lease_problem: str | None = None
        self._quarantines: dict[str, str] = {}
        self.waiter: Waiter | None = None
        self._wanted: list[DeviceClaim] = []  # what the waiter waits for
        # The lease that the waiter got, until a job uses it.
        self._waited_lease: tuple[list[DeviceClaim], Lease] | None = None
        self._waited_lease_until = 0.0
        self._was_requested = self._has_new_sample = False
        self._seen_at = float("-inf")
        self._needs_sample = False
        self._group_leases = GroupLeases()
        self._memory = MemoryWatch(self._group_leases)
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
        self._lease_refusals.clear()  # try again: another process may have released its lease
        self._other_holders.clear()
        self._has_new_sample = True
        self._seen_at, self._needs_sample = sample.at, False
        if self._waited_lease is not None and sample.at > self._waited_lease_until:
            self._release_waited_lease()
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
                self._clear(gpu, occupancy, sample.at)
                self._check_health(gpu)
                self._meters.add_sample(gpu, occupancy, live, sample.at)
                self._memory_actions += self._memory.observe(
                    gpu, device, occupancy, live, sample.at
                )
            for number in self._clearing.keys() - self._samples.keys():
                del self._clearing[number]  # the GPU is gone, and its memory too
            for fault in sample.faults:
                if not fault.is_harmless:
                    self._quarantine(fault.uuid, f"the driver reported {fault.name}")
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
        pids = self._meters.pids(job.attempt)
        for number in job.devices:
            occupancy = self._occupancy.get(number)
            ended = _EndedAttempt(now, pids, occupancy is not None and occupancy.has_hidden)
            self._clearing.setdefault(number, {})[job.attempt] = ended
            state = self.states.get(number, DeviceState())
            self.states = {
                **self.states,
                number: state._replace(closed_reason=_CLEARING, closes_briefly=True),
            }

    def apply_settings(self, rows: Iterable[tuple[str, bool, int | None, str | None]]) -> None:
        """Apply the settings from the database: (uuid, drained, slots, quarantine)."""
        before = self._settings
        self._settings = {uuid: (drained, slots, why) for uuid, drained, slots, why in rows}
        for uuid, why in self._quarantines.items():  # not in the database yet
            drained, slots, _ = self._settings.get(uuid, (False, None, None))
            self._settings[uuid] = (drained, slots, why)
        if self._settings != before:
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
        ended = [one for some in self._clearing.values() for one in some.values()]
        soon = any(one.ended_at + _CLEARING_SECONDS > now for one in ended)
        soon = soon or self._needs_sample or self._waited_lease is not None
        if soon:
            return now + _POLL_SECONDS
        return now + POLL_SECONDS if self._memory.is_pending else None

    def _clear(self, gpu: GpuSample, occupancy: Occupancy, at: float) -> None:
        clearing = self._clearing.get(gpu.number, {})
        for attempt, ended in list(clearing.items()):
            is_late = at > ended.ended_at + _CLEARING_SECONDS
            # Memory without an owner is probably that of its last process, being freed.
            is_freeing = occupancy.has_hidden and not ended.had_unowned_memory and not is_late
            listed = {process.pid for process in gpu.processes} & ended.pids
            is_listed = listed or attempt in occupancy.ours
            if at > ended.ended_at and not is_listed and not is_freeing:
                del clearing[attempt]
            elif is_late:
                kill_attempt(self._tag_base, attempt)

    def _check_health(self, gpu: GpuSample) -> None:
        # Only when the problem is new: after `stoker gpus restore`, the GPU is used as soon as the
        # problem is gone.
        if gpu.error is not None and gpu.error != self._problems.get(gpu.uuid):
            self._quarantine(gpu.uuid, gpu.error)
        self._problems[gpu.uuid] = gpu.error
        if gpu.ecc_errors is not None:
            new = gpu.ecc_errors - self._ecc.get(gpu.uuid, gpu.ecc_errors)
            self._ecc[gpu.uuid] = gpu.ecc_errors
            if new > 0:
                self._quarantine(gpu.uuid, f"uncorrectable ECC errors ({new} more)")

    def _quarantine(self, uuid: str, why: str) -> None:
        drained, slots, known = self._settings.get(uuid, (False, None, None))
        if known is None:
            self._settings[uuid] = (drained, slots, why)
            self._quarantines[uuid] = why

    def quarantines(self) -> dict[str, str]:
        return dict(self._quarantines)

    def quarantines_recorded(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            self._quarantines.pop(uuid, None)

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
        state = _with_reason(state, self._closed_reason(device))._replace(other_user=other)
        return state._replace(
            mps_problem=self.servers.problem(device.uuid),
            mps_starts=self.servers.is_starting(device.uuid),
        )

    def _closed_reason(self, device: Device) -> str | None:
        drained, _, quarantine = self._settings.get(device.uuid, (False, None, None))
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
        if self._clearing.get(device.number):
            return _CLEARING
        if self.servers.is_starting(device.uuid):
            return _MPS_STARTS
        return self._lease_refusals.get(device.number)

    def _device(self, gpu: GpuSample) -> Device:
        _, slots, _ = self._settings.get(gpu.uuid, (False, None, None))
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
        other = self._other_holder(shared) if self._use_leases else None
        session = None
        if other is not None:
            self._other_holders[device] = other
        else:
            session = self.servers.join(shared.uuid, request)
        if session is None:
            self._apply_changes()
        return session

    def _other_holder(self, device: Device) -> str | None:
        """Another user who holds a lease of the device; None if there is none."""
        try:
            held = holders([(device.uuid, device.pci, device.slice_of is not None)])
        except Error:
            return None
        own = os.getuid()
        return next((user_name(one.uid) for one in held if one.uid != own), None)

    def poll_servers(self, now: float) -> bool:
        has_changed = self.servers.poll(now)
        if has_changed:
            self._apply_changes()
        return has_changed

    # -- leases --------------------------------------------------------------------------------

    def lease(self, request: Request, devices: tuple[int, ...]) -> Lease | None:
        if not devices:
            return Lease([])
        self._was_requested = True
        if not self._is_fresh():
            return None
        joined = self._group_leases.join(request, devices[0])
        if joined is not None:
            return joined
        claims = self._claims(request, devices) if self._use_leases else []
        lease = (
            self._take_lease(claims, devices, waits=not request.preemptible)
            if claims
            else Lease([])
        )
        if lease is not None:
            self._group_leases.keep(request, devices[0], claims, lease)
        return lease

    def _take_lease(
        self, claims: list[DeviceClaim], devices: tuple[int, ...], *, waits: bool
    ) -> Lease | None:
        if self._waited_lease is not None:
            wanted, waited_lease = self._waited_lease
            if wanted == claims:
                self._waited_lease = None
                return waited_lease
            if {one.uuid for one in wanted} & {one.uuid for one in claims}:
                self._release_waited_lease()  # our own lease would block the new one
        unleased = {d.uuid: self._unleased(d) for d in self._devices(devices)}
        try:
            lease = try_take(claims, unleased)
            if lease is None:
                self._close(devices, "leased to another process")
                # Preemptible jobs take a lease only if no other process needs the GPU.
                if self.waiter is None and waits:
                    self.waiter = Waiter(claims)
                    self._wanted = claims
        except Error as error:  # e.g. an unsafe lease folder, or no memory
            self.lease_problem = error.message
            self._close(self._unleasable(devices), f"cannot be leased: {error.message}")
            return None
        self.lease_problem = None
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

    def _close(self, devices: tuple[int, ...], why: str) -> None:
        """Close devices until the next sample, when their lease is tried again."""
        for number in devices:
            self._lease_refusals[number] = why
            self.states = {**self.states, number: self.states[number]._replace(closed_reason=why)}

    def _unleasable(self, devices: tuple[int, ...]) -> tuple[int, ...]:
        """The devices whose lease failed; all of them if that cannot be determined."""
        found = []
        for device in self._devices(devices):
            place = [(device.uuid, device.pci, device.slice_of is not None)]
            try:
                holders(place)
                first_waiters(place)
            except Error:
                found.append(device.number)
        return tuple(found) or devices

    def _claims(self, request: Request, devices: tuple[int, ...]) -> list[DeviceClaim]:
        claims = []
        for device in self._devices(devices):
            if device.uuid in self._inherited_uuids:
                continue
            amount = amount_of(request, device)
            if is_measured(request):
                amount = self._left_for(device, amount)
            whole = amount >= capacity(device)
            claims.append(
                DeviceClaim(
                    device.uuid,
                    device.pci,
                    device.slice_of is not None,
                    capacity(device),
                    None if whole else amount,
                )
            )
        return claims

    def _left_for(self, device: Device, slot: int) -> int:
        """The part of a slot that other leases leave for a job that is being measured.

        If they leave too little, it is the least with which the job starts: a lease on more would
        also wait for our own jobs on the device.
        """
        try:
            held = holders([(device.uuid, device.pci, device.slice_of is not None)])
        except Error:
            return slot  # taking the lease will fail, too
        if not held or any(one.amount is None for one in held):
            return slot
        waited = self._waited_lease[0] if self._waited_lease is not None else []
        taken = sum(one.amount or 0 for one in held) - sum(
            one.amount or 0 for one in waited if one.uuid == device.uuid
        )
        left = min(slot, capacity(device) - taken - self._unleased(device))
        return max(left, int(slot * LEAST_PART))

    def _unleased(self, device: Device) -> int:
        """The memory of other processes without a lease."""
        number = device.number
        return self.states[number].unreserved_bytes - self._occupancy[number].leased

    def _devices(self, numbers: tuple[int, ...]) -> list[Device]:
        return [device for device in self.devices if device.number in numbers]

    def drop_unused_waiter(self) -> None:
        if self._has_new_sample and not self._was_requested:
            if self.waiter is not None:
                self.waiter.cancel()  # no job needs it, and other processes may wait behind us
                self.waiter = None
            if self._waited_lease is not None and self._is_open(self._waited_lease[0]):
                self._release_waited_lease()
        self._was_requested = self._has_new_sample = False

    def _is_open(self, claims: list[DeviceClaim]) -> bool:
        uuids = {claim.uuid for claim in claims}
        states = [self.states[d.number] for d in self.devices if d.uuid in uuids]
        return all(
            state.closed_reason is None and not state.has_other_processes for state in states
        )

    def take_waited_lease(self) -> bool:
        """Take the lease that the waiter got; True if that may change a decision."""
        if self.waiter is None:
            return False
        lease = self.waiter.take()
        if lease is None and not self.waiter.is_dead:
            return False
        self.waiter = None
        if lease is not None:
            self._release_waited_lease()
            self._waited_lease = (self._wanted, lease)
            # The last holder may still be freeing its memory: wait for a new sample, for a while.
            self._waited_lease_until = time.monotonic() + _CLEARING_SECONDS
            self._seen_at = float("-inf")
        self._lease_refusals.clear()
        self._apply_changes()
        return True

    def _release_waited_lease(self) -> None:
        """Release a lease that the waiter got and no job used."""
        if self._waited_lease is not None:
            self._waited_lease[1].close()
            self._waited_lease = None

    def close(self) -> None:
        if self.waiter is not None:
            self.waiter.cancel()
        self._release_waited_lease()
        self._group_leases.close()
        self.servers.close()
