"""Keeps the loop's cards in step with the driver and with the other users of the host."""

from __future__ import annotations

import os

from stoker.core.gpus.sample import Sample
from stoker.core.policy.placement import is_named
from stoker.daemon.gpus.fixed_gpus import ChangingGpus, FixedGpus
from stoker.daemon.gpus.gpu_file import read_gpu_file
from stoker.daemon.gpus.monitored_gpus import MonitoredGpus
from stoker.daemon.interfaces import EventListener
from stoker.daemon.loop import Loop
from stoker.devices.discovery import has_driver, simulated
from stoker.devices.nvml_client import NvmlClient
from stoker.errors import Error
from stoker.settings import Settings

_FILE_SECONDS = 2.0


def find_cards(settings: Settings, tag_base: int) -> FixedGpus:
    """The host's devices: simulated ones when asked for, else what the driver will tell."""
    if settings.devices:
        return FixedGpus(simulated(settings.devices))
    if has_driver():
        return MonitoredGpus(tag_base, settings.leases, settings.gpus_by_uuid)
    return FixedGpus(())


class DriverMonitor:
    """Hosts the watcher for one loop. For cards that never change it has nothing to do."""

    def __init__(self, cards: FixedGpus, gpu_file: str | None = None) -> None:
        self._cards = cards
        self._watch = NvmlClient() if isinstance(cards, ChangingGpus) else None
        self._gpu_file = gpu_file
        self._file_seen: tuple[int, int] | None = None
        self._look_at_file = 0.0
        self._ask_at: float | None = None
        self._told: str | None = None
        self.seen: Sample | None = None  # the newest

    def descriptors(self) -> set[int]:
        """What to listen to, besides the loop's own."""
        if self._watch is None or not isinstance(self._cards, ChangingGpus):
            return set()
        found = {self._watch.fileno()}
        if self._cards.waiter is not None:
            found.add(self._cards.waiter.fileno())
        return found

    def helpers(self) -> set[int]:
        """PIDs of the processes that help with this; they are no jobs."""
        if self._watch is None or not isinstance(self._cards, ChangingGpus):
            return set()
        pids = {self._watch.pid, self._cards.waiter.pid if self._cards.waiter is not None else None}
        return {pid for pid in pids if pid is not None}

    def next_deadline(self) -> float | None:
        if self._watch is None:
            return None
        times = [self._watch.next_deadline(), self._ask_at]
        if self._gpu_file is not None and self._cards.devices:
            times.append(self._look_at_file)
        return min((at for at in times if at is not None), default=None)

    def observe(self, loop: Loop, listener: EventListener, now: float) -> None:
        """Take in what the driver and other holders of leases said."""
        cards = self._cards
        if self._watch is None or not isinstance(cards, ChangingGpus):
            return
        for sample in (*self._watch.read(), *self._watch.check(now)):
            self.seen = sample
            if cards.update(sample, loop.running):
                loop.devices_changed()
            loop.stop_jobs_on(cards.lost())
        # Not before there are cards that it could mean; nothing is started before that either.
        if self._gpu_file is not None and cards.devices and now >= self._look_at_file:
            self._look_at_file = now + _FILE_SECONDS
            if self._read_file(self._gpu_file, cards, listener):
                loop.devices_changed()
        trouble = None
        if cards.trouble is not None:
            trouble = f"no GPU job is started: {cards.trouble}"
        elif cards.lease_trouble is not None:
            trouble = f"a GPU cannot be leased: {cards.lease_trouble}"
        if trouble is not None and trouble != self._told:
            listener.message(trouble)
        self._told = trouble
        if cards.take_waited_lease():
            loop.devices_changed()
        self._watch.set_active(bool(loop.running) or loop.has_waiting)
        again = cards.next_poll(now)
        if again is None:
            self._ask_at = None
        elif self._ask_at is None or now >= self._ask_at:
            self._watch.ask()
            self._ask_at = again

    def _read_file(self, path: str, cards: ChangingGpus, listener: EventListener) -> bool:
        """Obey the file; False when it says nothing new, or nothing that makes sense."""
        try:
            info = os.stat(path)
            seen = (info.st_mtime_ns, info.st_size)
            if seen == self._file_seen:
                return False
            slots = read_gpu_file(path)
        except (OSError, ValueError, Error) as error:
            why = error.message if isinstance(error, Error) else error
            listener.message(f"cannot use the GPU file `{path}` ({why}); it is ignored")
            return False
        self._file_seen = seen
        for name in slots:
            if not any(is_named(device, (name,)) for device in cards.devices):
                listener.message(f"`{path}` names GPU `{name}`, which this host does not have")
        cards.use_only(slots)
        return True

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._cards.close()
