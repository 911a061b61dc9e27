"""The cards for people and programs: the driver's word, our jobs, strangers, holders of leases."""

from __future__ import annotations

from stoker.core.formats.durations import format_size
from stoker.core.formats.shell_words import display
from stoker.core.gpus.occupancy import Occupancy, describe, occupancy_of
from stoker.core.gpus.sample import GpuSample
from stoker.core.model import Device
from stoker.core.policy.placement import is_named
from stoker.core.record import Record
from stoker.core.states import ACTIVE
from stoker.daemon.gpus.gpu_file import NOT_NAMED, read_gpu_file
from stoker.daemon.gpus.process_owners import leased_on, owners, user_name
from stoker.daemon.status import daemon_pid, known_devices
from stoker.devices.discovery import as_device, has_driver
from stoker.devices.leases.holders import Holder
from stoker.devices.leases.lease import holders
from stoker.devices.nvml_client import sample_once
from stoker.errors import Error
from stoker.settings import Settings
from stoker.store import device_settings, job_queries, meta
from stoker.store.database import Database
from stoker.store.job_queries import JobRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class GpuView(Record):
    """One card with everything that is known of it now."""

    device: Device
    card: GpuSample | None  # None: simulated
    jobs: tuple[JobRow, ...]
    occupancy: Occupancy | None
    holders: tuple[Holder, ...]  # of leases, other than our own daemon
    state: str
    closed: str | None  # why nothing is started there

    def memory_words(self) -> str:
        if self.card is None:
            return "-"
        total = self.card.total - self.card.reserved
        return f"{self.card.used / 2**30:.1f}/{format_size(total)}"

    def load_words(self) -> str:
        known = self.card is not None and self.card.utilisation is not None
        return f"{self.card.utilisation}%" if known and self.card else "-"

    def heat_words(self) -> str:
        if self.card is None or self.card.temperature is None:
            return "-"
        power = "" if self.card.power is None else f" {self.card.power:.0f} W"
        return f"{self.card.temperature} C{power}"

    def tenant_words(self) -> list[str]:
        lines = [f"{job.id} {job.name or display(job.argv, job.shell)}{self._share_of(job)}"
                 for job in self.jobs]  # fmt: skip
        return lines + self.others_words()

    def others_words(self) -> list[str]:
        strangers = self.occupancy.strangers if self.occupancy is not None else ()
        return [
            *(f"not ours: {describe(one)}" for one in strangers),
            *(holder_words(one) for one in self.holders),
        ]

    def _share_of(self, job: JobRow) -> str:
        words = []
        if self.occupancy is not None and job.attempt in self.occupancy.ours:
            words.append(f"has {format_size(self.occupancy.ours[job.attempt])}")
        if job.claim is not None:
            words.append(f"was promised {format_size(job.claim)}")
        return f"  ({', '.join(words)})" if words else ""

    def as_json(self) -> dict[str, Any]:
        card, device = self.card, self.device
        return {
            "index": device.number,
            "uuid": device.uuid,
            "visible": device.visible,
            "model": device.model,
            "pci": device.pci,
            "slice_of": device.slice_of,
            "slots": device.slots,
            "state": self.state,
            "memory_bytes": device.memory,
            "memory_used_bytes": card.used if card else None,
            "utilisation_percent": card.utilisation if card else None,
            "power_watts": card.power if card else None,
            "temperature_celsius": card.temperature if card else None,
            "jobs": [
                {"id": job.id, "claim_bytes": job.claim,
                 "memory_bytes": (self.occupancy.ours.get(job.attempt or 0) if self.occupancy
                                  else None)}
                for job in self.jobs
            ],
            "strangers": [
                {"pid": one.pid or None, "user": one.user, "memory_bytes": one.memory,
                 "compute": one.compute}
                for one in (self.occupancy.strangers if self.occupancy else ())
            ],
            "holders": [
                {"uid": one.uid, "pid": one.pid, "amount_bytes": one.amount}
                for one in self.holders
            ],
        }  # fmt: skip


def load_gpu_views(db: Database, settings: Settings) -> tuple[list[GpuView], str | None]:
    """All cards as they are now, and what is wrong with the driver, if anything is."""
    active = job_queries.page(db, ACTIVE, 1000)
    decisions = {uuid: rest for uuid, *rest in device_settings.device_settings(db)}
    if settings.devices or not has_driver():
        devices = known_devices(db, settings)
        return [_shown(d, None, active, None, (), decisions) for d in devices], None
    sample = sample_once()
    if sample.cards is None:
        devices = job_queries.devices(db)
        return [_shown(d, None, active, None, (), decisions) for d in devices], sample.trouble
    known = {device.uuid: device for device in job_queries.devices(db)}
    places = [(card.uuid, card.pci, card.slice_of is not None) for card in sample.cards]
    ours = daemon_pid(settings.state_dir)
    leases = [one for one in holders(places) if one.pid != ours]
    attempts, users = owners(sample.cards, meta.store_tag(db))
    shown = []
    for card in sample.cards:
        device = known.get(card.uuid) or as_device(card, by_uuid=settings.gpus_by_uuid)
        leased = leased_on(card, users, ours) if settings.leases else set()
        who = occupancy_of(card, attempts, users, leased)
        mine = tuple(one for one in leases if one.uuid == card.uuid)
        shown.append(_shown(device, card, active, who, mine, decisions))
    if sample.trouble is not None:  # of a card that cannot be opened
        seen = {card.uuid for card in sample.cards}
        for uuid in known.keys() - seen:
            lost = _shown(known[uuid], None, active, None, (), decisions)
            closed = lost.closed or sample.trouble
            shown.append(lost._replace(state=closed, closed=closed))
        shown.sort(key=lambda one: one.device.number)
    return _allowed(shown, settings), None


def _allowed(shown: list[GpuView], settings: Settings) -> list[GpuView]:
    """With those marked that the GPU file leaves out."""
    try:
        names = None if settings.gpu_file is None else read_gpu_file(settings.gpu_file)
    except (OSError, ValueError, Error):
        names = None
    if names is None:
        return shown
    return [
        one._replace(state=NOT_NAMED, closed=NOT_NAMED)
        if one.closed is None and not is_named(one.device, names)
        else one
        for one in shown
    ]


def _shown(
    device: Device,
    card: GpuSample | None,
    active: list[JobRow],
    who: Occupancy | None,
    leases: tuple[Holder, ...],
    decisions: dict[str, list[Any]],
) -> GpuView:
    drained, _, quarantine = decisions.get(device.uuid, (False, None, None))
    jobs = tuple(job for job in active if device.number in job.devices)
    closed = None
    if card is not None and card.trouble is not None:
        closed = card.trouble
    elif quarantine:
        closed = f"in quarantine: {quarantine}"
    elif drained:
        closed = "drained"
    elif not jobs and any(one.amount is None for one in leases):
        closed = f"leased to {holder_name(leases[0])}"
    is_taken = (who is not None and who.has_strangers) or bool(leases)
    state = closed or ("busy" if jobs else "taken" if is_taken else "free")
    return GpuView(device, card, jobs, who, leases, state, closed)


def holder_name(holder: Holder) -> str:
    return f"{user_name(holder.uid)} (pid {holder.pid})"


def holder_words(holder: Holder) -> str:
    amount = "all of it" if holder.amount is None else format_size(holder.amount)
    return f"leased: {amount} to {holder_name(holder)}"
