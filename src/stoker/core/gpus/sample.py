"""What the driver says of the GPUs: one sample, as devices/nvml_process.py takes it."""

from __future__ import annotations

from stoker.core.record import Record


class GpuProcess(Record):
    """A process that the driver lists on a card. `memory` is None where it will not tell."""

    pid: int
    memory: int | None
    compute: bool  # False: graphics only, such as a display server


class GpuSample(Record):
    """One GPU or MIG slice. Bytes, watts, joules, degrees; None where the driver does not know."""

    uuid: str
    number: int  # index in PCI order, as nvidia-smi shows it; slices follow after all cards
    visible: str  # for CUDA_VISIBLE_DEVICES: the index, or the UUID of a slice
    model: str
    pci: str  # as in sysfs: 0000:65:00.0
    total: int
    reserved: int  # by the driver
    used: int  # without what is reserved
    slice_of: str | None = None  # the UUID of the card that a MIG slice is part of
    utilisation: int | None = None  # percent
    power: float | None = None
    temperature: int | None = None
    energy: float | None = None  # since the driver was loaded
    ecc_errors: int | None = None  # uncorrected, since the driver was loaded
    processes: tuple[GpuProcess, ...] = ()
    trouble: str | None = None  # why it cannot be used: lost, needs a reset


class Xid(Record):
    """An error that the driver reported for a card."""

    uuid: str
    code: int


class Sample(Record):
    """All cards at one moment (monotonic). `cards` is None when the driver did not answer."""

    at: float
    cards: tuple[GpuSample, ...] | None
    trouble: str | None = None
    xids: tuple[Xid, ...] = ()
