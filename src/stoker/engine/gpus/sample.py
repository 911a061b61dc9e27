"""One sample of the GPUs, as engine/devices/driver_process.py takes it.

Field names are part of the message format between processes (engine/devices/sample_lines.py).
"""

from __future__ import annotations

from stoker.record import Record


class GpuProcess(Record):
    """A process that the driver lists on a GPU; `memory` is None if it is not reported."""

    pid: int
    memory: int | None
    compute: bool  # False: graphics only, such as a display server


class GpuSample(Record):
    """One GPU or MIG slice, in bytes, watts, joules, degrees Celsius; None: not reported."""

    uuid: str
    number: int  # index in PCI order, as nvidia-smi shows it; slices follow after all GPUs
    visible: str  # for CUDA_VISIBLE_DEVICES: the index, or the UUID of a slice
    model: str
    pci: str  # as in sysfs: 0000:65:00.0
    total: int
    reserved: int  # by the driver
    used: int  # without reserved memory
    slice_of: str | None = None  # the UUID of the GPU that a MIG slice is part of
    utilisation: int | None = None  # percent
    power: float | None = None
    temperature: int | None = None
    energy: float | None = None  # since the driver was loaded
    ecc_errors: int | None = None  # uncorrected, since the driver was loaded
    processes: tuple[GpuProcess, ...] = ()
    error: str | None = None  # why it is unusable: lost, needs a reset
    numa: int | None = None  # its NUMA node
    cpus: str = ""  # the CPUs near it, as 0-15,32-47; empty on a host with one NUMA node
    links: tuple[str, ...] = ()  # UUIDs of the GPUs that NVLink connects with it
    load_at: float | None = None  # when utilisation was read (monotonic)
    power_limit: float | None = None
    computing: tuple[int, ...] | None = None  # PIDs that computed in the last seconds


class GpuFault(Record):
    """An error that the driver reported for a GPU."""

    uuid: str
    name: str  # as the vendor documents it, such as "Xid 79"
    is_harmless: bool = False  # the fault of an application: the GPU works


class Sample(Record):
    """All GPUs at one moment (monotonic).

    If the driver did not answer, `gpus` is None and `error` holds the error.
    """

    at: float
    gpus: tuple[GpuSample, ...] | None
    error: str | None = None
    faults: tuple[GpuFault, ...] = ()
