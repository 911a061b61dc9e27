"""The GPUs of `schedule` by index: what is leased for each, and who has it.

An index that this host has is a real card. One that it has not is a slot of which nothing is known;
`schedule` processes keep each other off it by a lock file in the folder of the leases.
"""

from __future__ import annotations

import os
import time

from stoker.compat.schedule.state_file import FREE, Entry
from stoker.core.gpus.occupancy import occupancy_of
from stoker.core.gpus.sample import GpuSample
from stoker.daemon.gpus.process_owners import user_name, user_of
from stoker.devices.discovery import has_driver
from stoker.devices.leases.holders import DeviceClaim, Holder
from stoker.devices.leases.lease import holders
from stoker.errors import Error

TIME = "%Y-%m-%d %H:%M:%S"
_FRESH_SECONDS = 1.0
_RELEASE_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 0.002


class Gpus:
    def __init__(self) -> None:
        self._cards: dict[int, GpuSample] = {}
        self._seen_at = 0.0
        self.trouble: str | None = None  # why nothing is known of the cards
        if has_driver():
            self._look()
        # Inside a job its cards are leased already, and to us as well.
        self._held = set(os.environ.get("STOKER_GPU_UUIDS", "").split(","))
        self.ours: dict[int, Entry] = {}

    def _look(self) -> None:
        from stoker.devices.nvml_client import sample_once

        sample = sample_once()
        self._seen_at = sample.at
        if sample.cards is None:  # as far as we know, it is as it was
            self.trouble = None if self._cards else sample.trouble
        else:
            self._cards = {card.number: card for card in sample.cards}

    @property
    def count(self) -> int | None:
        """How many there are, where that can be known."""
        return len(self._cards) or None

    def claim(self, index: int) -> DeviceClaim:
        card = self._cards.get(index)
        if card is None or card.uuid in self._held:
            return DeviceClaim(
                f"schedule-{index if card is None else card.uuid}", "", False, 0, None
            )
        return DeviceClaim(card.uuid, card.pci, card.slice_of is not None, card.total, None)

    def strangers(self, indices: tuple[int, ...]) -> dict[int, str]:
        """Who is on cards that are leased to us, and so has no lease; in words, by index."""
        found = self._strangers(indices)
        if self._cards and (found or time.monotonic() - self._seen_at > _FRESH_SECONDS):
            self._look()  # whoever had it before may only just have left
            found = self._strangers(indices)
        return found

    def _strangers(self, indices: tuple[int, ...]) -> dict[int, str]:
        found = {}
        for index in indices:
            card = self._cards.get(index)
            if card is not None and card.uuid not in self._held:
                seen = occupancy_of(card, {}, {p.pid: user_of(p.pid) for p in card.processes})
                if card.trouble is not None or seen.has_strangers:
                    found[index] = card.trouble or seen.note or "somebody is there"
        return found

    def visible(self, indices: tuple[int, ...]) -> str:
        """For CUDA_VISIBLE_DEVICES."""
        return ",".join(self._cards[i].visible if i in self._cards else str(i) for i in indices)

    def uuids(self, indices: tuple[int, ...]) -> str:
        return ",".join(self._cards[i].uuid for i in indices if i in self._cards)

    def truth(self, index: int, entry: Entry) -> Entry:
        """How a GPU really is; `entry` is what the state file says of it."""
        if index in self.ours:
            return self.ours[index]
        claim = self.claim(index)
        try:
            found = holders([(claim.uuid, claim.pci, claim.is_slice)])
        except Error:
            return entry  # whoever wants to use it will be told
        if not found:
            return entry if entry.is_withheld else FREE
        return entry if _is_by(found[0], entry) else _describe(index, found[0])

    def await_release(self, indices: tuple[int, ...]) -> None:
        """Wait until the leases of our task are gone.

        A helper that we started meanwhile has copies of them until the kernel has replaced its
        image, which is later than the moment at which we go on.
        """
        claims = [self.claim(index) for index in indices]
        give_up = time.monotonic() + _RELEASE_SECONDS
        while time.monotonic() < give_up:
            try:
                found = holders([(one.uuid, one.pci, one.is_slice) for one in claims])
            except Error:
                return
            if all(holder.pid != os.getpid() for holder in found):
                return
            time.sleep(_LOOK_AGAIN_SECONDS)


def _is_by(holder: Holder, entry: Entry) -> bool:
    """Whether the task that the file tells of belongs to who has the lease."""
    if entry.avail or entry.task_pid is None:
        return False
    try:
        with open(f"/proc/{entry.task_pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1]) == holder.pid
    except (OSError, ValueError):
        return False


def _describe(index: int, holder: Holder) -> Entry:
    """Somebody who does not write into the file, or has not yet."""
    try:
        with open(f"/proc/{holder.pid}/cmdline", "rb") as file:
            words = file.read().decode("utf-8", "replace").split("\0")[:-1]
        start = time.strftime(TIME, time.localtime(os.stat(f"/proc/{holder.pid}").st_mtime))
    except OSError:
        words, start = [], None
    return Entry(False, f"cuda{index}", words or None, holder.pid, start, user_name(holder.uid))
