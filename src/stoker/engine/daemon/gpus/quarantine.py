"""GPUs with hardware errors: no job starts on them until `stoker gpus restore`."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.engine.gpus.sample import GpuFault, GpuSample


class Quarantine:
    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}  # by UUID
        self.unrecorded: dict[str, str] = {}  # of `reasons`: those not in the database yet
        self._problems: dict[str, str | None] = {}  # by UUID, in the last sample
        self._ecc: dict[str, int] = {}  # error count by UUID, in the last sample

    def apply(self, recorded: dict[str, str]) -> None:
        """Apply the reasons that are in the database."""
        self.reasons = {**recorded, **self.unrecorded}

    def recorded(self, uuids: Iterable[str]) -> None:
        """The reasons of these GPUs are in the database now."""
        for uuid in uuids:
            self.unrecorded.pop(uuid, None)

    def check(self, gpu: GpuSample) -> None:
        # Only when the problem is new: after `stoker gpus restore`, the GPU is used as soon as the
        # problem is gone.
        if gpu.error is not None and gpu.error != self._problems.get(gpu.uuid):
            self._add(gpu.uuid, gpu.error)
        self._problems[gpu.uuid] = gpu.error
        if gpu.ecc_errors is not None:
            new = gpu.ecc_errors - self._ecc.get(gpu.uuid, gpu.ecc_errors)
            self._ecc[gpu.uuid] = gpu.ecc_errors
            if new > 0:
                self._add(gpu.uuid, f"uncorrectable ECC errors ({new} more)")

    def add_faults(self, faults: Iterable[GpuFault]) -> None:
        for fault in faults:
            if not fault.is_harmless:
                self._add(fault.uuid, f"the driver reported {fault.name}")

    def _add(self, uuid: str, why: str) -> None:
        if uuid not in self.reasons:
            self.reasons[uuid] = self.unrecorded[uuid] = why
