"""Devices that follow the driver, through a helper process.

Strangers are kept clear of, a card is used again only when the driver shows that the last job's
processes are gone, and a card in trouble is left alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

from stoker.core.gpus.occupancy import Occupancy, occupancy_of, state_of
from stoker.core.gpus.sample import GpuSample, Sample
from stoker.core.model import Device, DeviceState, Request, RunningJob
from stoker.core.policy.placement import amount_of, capacity, is_named
from stoker.core.record import Record
from stoker.daemon.gpus.fixed_gpus import ChangingGpus
from stoker.daemon.gpus.gpu_file import NOT_NAMED
from stoker.daemon.gpus.gpu_usage import GpuUse, UsageMeters
from stoker.daemon.gpus.process_owners import leased_on, owners
from stoker.devices.discovery import as_device
from stoker.devices.leases.holders import DeviceClaim
from stoker.devices.leases.lease import Lease, Waiter, first_in_line, holders, try_take
from stoker.errors import Error
from stoker.supervisor.kill_processes import kill_attempt

# Memory of ours that the driver still lists after its process is gone: look for who keeps it.
_CLEARING_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.05
# What was seen longer ago is looked at again before a job is put there: others come and go.
_FRESH_SECONDS = 1.0

_CLEARING = "clearing"
_LOOKED_AT = "being looked at"


def _closed(state: DeviceState, why: str | None) -> DeviceState:
    return state._replace(closed=why, is_brief=why in (_CLEARING, _LOOKED_AT))


class _Leaving(Record):
    """An attempt that is over and may still be on a card."""

    since: float
    pids: set[int]
    beside_hidden: bool  # memory of nobody was there before it ended


class MonitoredGpus(ChangingGpus):
    """Devices that the driver tells of."""

    def __init__(
        self, tag_base: int, leases: bool, by_uuid: bool, held: Iterable[str] = ()
    ) -> None:
        super().__init__(())
        self._held = frozenset(held)  # cards that the job around us has leased already
        self._tag_base = tag_base
        self._leases = leases
        self._by_uuid = by_uuid
        self._numbers: dict[str, int] = {}
        self._cards: dict[int, GpuSample] = {}
        self._tenants: dict[int, Occupancy] = {}
        self._meters = UsageMeters(tag_base)
        self._clearing: dict[int, dict[int, _Leaving]] = {}  # device: attempt
        self._troubles: dict[str, str | None] = {}  # as last seen
        self._ecc: dict[str, int] = {}  # errors as last seen
        self._leased: dict[int, str] = {}  # device: who has it
        self._decided: dict[str, tuple[bool, int | None, str | None]] = {}
        self._named: dict[str, int] | None = None
        self.trouble: str | None = None
        self.lease_trouble: str | None = None
        self._quarantines: dict[str, str] = {}
        self.waiter: Waiter | None = None
        self._wanted: list[DeviceClaim] = []  # what the waiter is for
        self._granted: tuple[list[DeviceClaim], Lease] | None = None
        self._granted_until = 0.0
        self._was_asked = self._looks_again = False
        self._seen_at = float("-inf")
        self._wants_look = False

    # -- what happens --------------------------------------------------------------------------

    def update(self, sample: Sample, live: Mapping[int, RunningJob]) -> bool:
        """Take in a sample; True when a decision could come out differently."""
        before = (self.devices, self.states)
        self._leased.clear()  # look again: somebody may have gone
        self._looks_again = True
        self._seen_at, self._wants_look = sample.at, False
        if self._granted is not None and sample.at > self._granted_until:
            self._give_back()
        if sample.cards is None:
            self.trouble = sample.trouble
        else:
            self.trouble = None
            cards = [card._replace(number=self._number(card)) for card in sample.cards]
            self._cards = {card.number: card for card in cards}
            self.devices = tuple(self._device(card) for card in cards)
            # One that is dead and still listed is known from before.
            known = self._meters.attempts()
            attempts, users = owners(cards, self._tag_base, known)
            for card in cards:
                leased = leased_on(card, users, os.getpid()) if self._leases else set()
                seen = self._tenants[card.number] = occupancy_of(card, attempts, users, leased)
                self._clear(card, seen, sample.at)
                self._note_trouble(card)
                self._meters.read(card, seen, live, sample.at)
            for number in self._clearing.keys() - self._cards.keys():
                del self._clearing[number]  # the card is gone, and with it whatever was there
            for xid in sample.xids:
                if xid.code not in _HARMLESS_XIDS:
                    self._quarantine(xid.uuid, f"the driver reported Xid {xid.code}")
        self._find_states(live)
        return (self.devices, self.states) != before

    def remember(self, devices: Iterable[Device]) -> None:
        """The numbers that the last daemon gave; jobs that still run are on record by them."""
        self._numbers.update((device.uuid, device.number) for device in devices if device.pci)

    def _number(self, card: GpuSample) -> int:
        """Indices move up when a card vanishes; ours do not, because jobs are on record by them."""
        known = self._numbers.get(card.uuid)
        if known is None:
            taken = set(self._numbers.values())
            known = card.number if card.number not in taken else max(taken) + 1
            self._numbers[card.uuid] = known
        return known

    def attempt_ended(self, job: RunningJob, now: float) -> None:
        """Its cards are closed until the driver confirms that its processes are gone."""
        pids = self._meters.pids(job.attempt)
        for number in job.devices:
            seen = self._tenants.get(number)
            leaving = _Leaving(now, pids, seen is not None and seen.has_hidden)
            self._clearing.setdefault(number, {})[job.attempt] = leaving
            state = self.states.get(number, DeviceState())
            self.states = {**self.states, number: state._replace(closed=_CLEARING, is_brief=True)}

    def apply_settings(self, rows: Iterable[tuple[str, bool, int | None, str | None]]) -> None:
        """What people decided: (uuid, drained, slots, quarantine)."""
        before = self._decided
        self._decided = {uuid: (drained, slots, why) for uuid, drained, slots, why in rows}
        for uuid, why in self._quarantines.items():  # not in the books yet
            drained, slots, _ = self._decided.get(uuid, (False, None, None))
            self._decided[uuid] = (drained, slots, why)
        if self._decided != before:
            self._reconsider()

    def use_only(self, names: dict[str, int] | None) -> None:
        """Leave all other cards alone; the numbers are slots."""
        self._named = names
        self._reconsider()

    def _reconsider(self) -> None:
        """A decision holds from now on, not from the next sample on."""
        self.devices = tuple(self._device(self._cards[device.number]) for device in self.devices)
        self.states = {
            device.number: _closed(self.states[device.number], self._closed(device))
            for device in self.devices
        }

    def next_poll(self, now: float) -> float | None:
        """When the driver should be asked again before its next sample."""
        leaving = [one for some in self._clearing.values() for one in some.values()]
        soon = any(one.since + _CLEARING_SECONDS > now for one in leaving)
        soon = soon or self._wants_look or self._granted is not None
        return now + _LOOK_AGAIN_SECONDS if soon else None

    def _clear(self, card: GpuSample, seen: Occupancy, at: float) -> None:
        waiting = self._clearing.get(card.number, {})
        for attempt, leaving in list(waiting.items()):
            is_late = at > leaving.since + _CLEARING_SECONDS
            # Memory without an owner is most likely what its last process is giving back.
            fades = seen.has_hidden and not leaving.beside_hidden and not is_late
            listed = {process.pid for process in card.processes} & leaving.pids
            if at > leaving.since and attempt not in seen.ours and not listed and not fades:
                del waiting[attempt]
            elif is_late:
                kill_attempt(self._tag_base, attempt)

    def _note_trouble(self, card: GpuSample) -> None:
        # Once: when somebody restores the card, it is used as soon as the trouble is over.
        if card.trouble is not None and card.trouble != self._troubles.get(card.uuid):
            self._quarantine(card.uuid, card.trouble)
        self._troubles[card.uuid] = card.trouble
        if card.ecc_errors is not None:
            new = card.ecc_errors - self._ecc.get(card.uuid, card.ecc_errors)
            self._ecc[card.uuid] = card.ecc_errors
            if new > 0:
                self._quarantine(card.uuid, f"uncorrectable ECC errors ({new} more)")

    def _quarantine(self, uuid: str, why: str) -> None:
        drained, slots, known = self._decided.get(uuid, (False, None, None))
        if known is None:
            self._decided[uuid] = (drained, slots, why)
            self._quarantines[uuid] = why

    def quarantines(self) -> dict[str, str]:
        return dict(self._quarantines)

    def quarantines_recorded(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            self._quarantines.pop(uuid, None)

    def lost(self) -> set[int]:
        """Devices that are not there any more; what runs on them cannot go on."""
        return {card.number for card in self._cards.values() if card.trouble is not None}

    def _find_states(self, live: Mapping[int, RunningJob]) -> None:
        self.states = {
            device.number: _closed(
                state_of(device, self._tenants[device.number], live.values(), None),
                self._closed(device),
            )
            for device in self.devices
        }

    def _closed(self, device: Device) -> str | None:
        drained, _, quarantine = self._decided.get(device.uuid, (False, None, None))
        if self.trouble is not None:
            return self.trouble
        if quarantine is not None:
            return f"in quarantine: {quarantine}"
        if self._cards[device.number].trouble is not None:
            return self._cards[device.number].trouble
        if drained:
            return "drained"
        if self._named is not None and not is_named(device, self._named):
            return NOT_NAMED
        if self._clearing.get(device.number):
            return _CLEARING
        return self._leased.get(device.number)

    def _device(self, card: GpuSample) -> Device:
        _, slots, _ = self._decided.get(card.uuid, (False, None, None))
        device = as_device(card, slots or 1, self._by_uuid)
        if self._named is not None:
            for name, count in self._named.items():
                if is_named(device, (name,)):
                    return device._replace(slots=count)
        return device

    def take_use(self, attempt: int) -> GpuUse:
        return self._meters.take(attempt)

    # -- leases --------------------------------------------------------------------------------

    def lease(self, request: Request, devices: tuple[int, ...]) -> Lease | None:
        if not devices:
            return Lease([])
        self._was_asked = True
        if time.monotonic() - self._seen_at > _FRESH_SECONDS:
            self._wants_look = True
            self.states = {
                number: state._replace(closed=_LOOKED_AT, is_brief=True)
                for number, state in self.states.items()
            }
            return None
        if not self._leases:
            return Lease([])
        claims = self._claims(request, devices)
        if not claims:
            return Lease([])
        if self._granted is not None:
            wanted, granted = self._granted
            if wanted == claims:
                self._granted = None
                return granted
            if {one.uuid for one in wanted} & {one.uuid for one in claims}:
                self._give_back()  # we would stand in our own way
        strangers = {
            d.uuid: self.states[d.number].foreign - self._tenants[d.number].leased
            for d in self._of(devices)
        }
        try:
            lease = try_take(claims, strangers)
            if lease is None:
                self._close(devices, "leased to somebody else")
                if self.waiter is None:
                    self.waiter = Waiter(claims)
                    self._wanted = claims
        except Error as error:  # a file that somebody planted, a folder that is not safe, no memory
            self.lease_trouble = error.message
            self._close(self._unleasable(devices), f"cannot be leased: {error.message}")
            return None
        self.lease_trouble = None
        return lease

    def _close(self, devices: tuple[int, ...], why: str) -> None:
        """Until the next sample, when it is tried again."""
        for number in devices:
            self._leased[number] = why
            self.states = {**self.states, number: self.states[number]._replace(closed=why)}

    def _unleasable(self, devices: tuple[int, ...]) -> tuple[int, ...]:
        """Those to blame that others of them could not be leased; all when that is not clear."""
        found = []
        for device in self._of(devices):
            place = [(device.uuid, device.pci, device.slice_of is not None)]
            try:
                holders(place)
                first_in_line(place)
            except Error:
                found.append(device.number)
        return tuple(found) or devices

    def _claims(self, request: Request, devices: tuple[int, ...]) -> list[DeviceClaim]:
        claims = []
        for device in self._of(devices):
            if device.uuid in self._held:
                continue
            amount = amount_of(request, device)
            whole = amount >= capacity(device)
            claims.append(
                DeviceClaim(device.uuid, device.pci, device.slice_of is not None,
                          capacity(device), None if whole else amount)
            )  # fmt: skip
        return claims

    def _of(self, numbers: tuple[int, ...]) -> list[Device]:
        return [device for device in self.devices if device.number in numbers]

    def drop_unused_waiter(self) -> None:
        if self._looks_again and not self._was_asked:
            if self.waiter is not None:
                self.waiter.cancel()  # nobody wants that any more, and others stand behind us
                self.waiter = None
            if self._granted is not None and self._is_open(self._granted[0]):
                self._give_back()
        self._was_asked = self._looks_again = False

    def _is_open(self, claims: list[DeviceClaim]) -> bool:
        uuids = {claim.uuid for claim in claims}
        states = [self.states[d.number] for d in self.devices if d.uuid in uuids]
        return all(state.closed is None and not state.has_strangers for state in states)

    def take_waited_lease(self) -> bool:
        """The helper that stands in line for us has something to say."""
        if self.waiter is None:
            return False
        lease = self.waiter.take()
        if lease is None and not self.waiter.is_dead:
            return False
        self.waiter = None
        if lease is not None:
            self._give_back()
            self._granted = (self._wanted, lease)
            # Who had it may still be giving its memory back; that is seen, or waited for a while.
            self._granted_until = time.monotonic() + _CLEARING_SECONDS
            self._seen_at = float("-inf")
        self._leased.clear()
        self._reconsider()
        return True

    def _give_back(self) -> None:
        """It was ours, and nobody took it."""
        if self._granted is not None:
            self._granted[1].close()
            self._granted = None

    def close(self) -> None:
        if self.waiter is not None:
            self.waiter.cancel()
        self._give_back()


# Application faults and notices; the card is fine (NVIDIA's catalogue of Xid errors).
_HARMLESS_XIDS = frozenset({13, 31, 43, 45, 68, 94})
