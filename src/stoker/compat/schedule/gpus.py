"""The GPUs of `schedule` by index: their leases and the holders of the leases.

An index may be a GPU of this host. An index without a GPU is an opaque slot, which `schedule`
processes lease through a lock file in the lease folder.
"""

from __future__ import annotations

import os
import time

from stoker.compat.schedule.state_file import FREE, Entry
from stoker.engine.daemon.gpus.process_owners import user_name, user_of
from stoker.engine.devices.discovery import has_driver
from stoker.engine.devices.leases.holders import DeviceClaim, Holder
from stoker.engine.devices.leases.lease import holders
from stoker.engine.gpus.occupancy import occupancy_of
from stoker.engine.gpus.sample import GpuSample
from stoker.errors import Error

TIME = "%Y-%m-%d %H:%M:%S"
_FRESH_SECONDS = 1.0
_RELEASE_SECONDS = 2.0
_POLL_SECONDS = 0.002


class Gpus:
    def __init__(self) -> None:
        self._samples: dict[int, GpuSample] = {}
        self._sampled_at = 0.0
        self.driver_error: str | None = None  # why the state of the GPUs is unknown
        if has_driver():
            self._sample()
        # Inside a job, the job's lease also covers `schedule`.
        self._held = set(os.environ.get("STOKER_GPU_UUIDS", "").split(","))
        self.own_entries: dict[int, Entry] = {}  # the GPUs of our task

    def _sample(self) -> None:
        from stoker.engine.devices.driver_client import sample_once

        sample = sample_once()
        self._sampled_at = sample.at
        if sample.gpus is None:  # keep the last known state
            self.driver_error = None if self._samples else sample.error
        else:
            self._samples = {gpu.number: gpu for gpu in sample.gpus}

    @property
    def count(self) -> int | None:
        """The number of GPUs of this host; None if unknown or zero."""
        return len(self._samples) or None

    def claim(self, index: int) -> DeviceClaim:
        gpu = self._samples.get(index)
        if gpu is None or gpu.uuid in self._held:
            name = f"schedule-{index if gpu is None else gpu.uuid}"
            return DeviceClaim(name, "", False, 0, None)
        return DeviceClaim(gpu.uuid, gpu.pci, gpu.slice_of is not None, gpu.total, None)

    def other_processes(self, indices: tuple[int, ...]) -> dict[int, str]:
        """Descriptions, by index, of processes without a lease on GPUs that are leased to us."""
        found = self._sampled_processes(indices)
        if self._samples and (found or time.monotonic() - self._sampled_at > _FRESH_SECONDS):
            self._sample()  # the previous process may have exited since the last sample
            found = self._sampled_processes(indices)
        return found

    def _sampled_processes(self, indices: tuple[int, ...]) -> dict[int, str]:
        found = {}
        for index in indices:
            gpu = self._samples.get(index)
            if gpu is not None and gpu.uuid not in self._held:
                occupancy = occupancy_of(gpu, {}, {p.pid: user_of(p.pid) for p in gpu.processes})
                if gpu.error is not None or occupancy.has_other_processes:
                    found[index] = gpu.error or occupancy.note or "another process uses it"
        return found

    def visible(self, indices: tuple[int, ...]) -> str:
        """The value for CUDA_VISIBLE_DEVICES."""
        return ",".join(self._samples[i].visible if i in self._samples else str(i) for i in indices)

    def uuids(self, indices: tuple[int, ...]) -> str:
        return ",".join(self._samples[i].uuid for i in indices if i in self._samples)

    def actual_state(self, index: int, entry: Entry) -> Entry:
        """The entry that matches the leases; `entry` is the one in the state file."""
        if index in self.own_entries:
            return self.own_entries[index]
        claim = self.claim(index)
        try:
            found = holders([(claim.uuid, claim.pci, claim.is_slice)])
        except Error:
            return entry  # reported when a task needs this GPU
        if not found:
            return entry if entry.is_disabled else FREE
        return entry if _is_task_of(found[0], entry) else _describe(index, found[0])

    def await_release(self, indices: tuple[int, ...]) -> None:
        """Wait until the leases of our task are released.

        The state repair process inherits copies of the lock descriptors and holds them until its
        exec, which may be later than the end of the task.
        """
        claims = [self.claim(index) for index in indices]
        deadline = time.monotonic() + _RELEASE_SECONDS
        while time.monotonic() < deadline:
            try:
                found = holders([(claim.uuid, claim.pci, claim.is_slice) for claim in claims])
            except Error:
                return
            if all(holder.pid != os.getpid() for holder in found):
                return
            time.sleep(_POLL_SECONDS)


def _is_task_of(holder: Holder, entry: Entry) -> bool:
    """Whether the task in the entry is a child of the process that holds the lease."""
    if entry.avail or entry.task_pid is None:
        return False
    try:
        with open(f"/proc/{entry.task_pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1]) == holder.pid
    except (OSError, ValueError):
        return False


def _describe(index: int, holder: Holder) -> Entry:
    """An entry for a lease holder that has not written one itself."""
    try:
        with open(f"/proc/{holder.pid}/cmdline", "rb") as file:
            words = file.read().decode("utf-8", "replace").split("\0")[:-1]
        start = time.strftime(TIME, time.localtime(os.stat(f"/proc/{holder.pid}").st_mtime))
    except OSError:
        words, start = [], None
    return Entry(False, f"cuda{index}", words or None, holder.pid, start, user_name(holder.uid))
