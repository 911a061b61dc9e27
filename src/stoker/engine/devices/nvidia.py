"""Read the GPUs with NVML, the library of the NVIDIA driver.

Any call here can block in the driver for any time, even after SIGKILL. So only the NVML process
(driver_process.py) uses this module.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import pynvml  # type: ignore[import-untyped]

from stoker.engine.devices.nvidia_topology import GpuLocation, read_locations
from stoker.engine.gpus.sample import GpuProcess, GpuSample, Xid

_ENUMERATE_SECONDS = 30.0
_MAX_XIDS = 64

# Errors for features that a GPU, a driver or an older library does not have.
_LACKING = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    # Some functions of newer nvidia-ml-py raise this instead of FunctionNotFound.
    getattr(pynvml, "NVMLLibraryMismatchError", pynvml.NVMLError_FunctionNotFound),
)


def _computing(handle: Any) -> tuple[int, ...]:
    """Return the PIDs that computed in the last seconds."""
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(handle, 0)
    except pynvml.NVMLError_NotFound:  # there are no samples
        return ()
    return tuple(sorted({sample.pid for sample in samples if sample.smUtil}))


# Field of GpuSample, seconds between two readings, and how to read it. Each takes milliseconds.
_GAUGES: tuple[tuple[str, float, Callable[[Any], Any]], ...] = (
    ("utilisation", 2.0, lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
    ("computing", 2.0, _computing),
    ("power", 2.0, lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000),
    (
        "temperature",
        2.0,
        lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
    ),
    ("power_limit", 60.0, lambda gpu: pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000),
    ("energy", 10.0, lambda gpu: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000),
    (
        "ecc_errors",
        10.0,
        lambda gpu: pynvml.nvmlDeviceGetTotalEccErrors(
            gpu, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        ),
    ),
)

# Readings that are repeated while the memory of a job is being measured.
_LOAD = ("utilisation", "computing", "power")
_LOAD_SECONDS = 0.4

_COMPUTE = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
_GRAPHICS = ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2")


class Unusable(Exception):
    """The driver cannot be used; the message is one sentence.

    `needs_reload`: the loaded library is part of the problem, so the process has to restart.
    """

    def __init__(self, text: str, needs_reload: bool = False) -> None:
        super().__init__(text)
        self.needs_reload = needs_reload


class _Unit:
    """What a job can use: a GPU, or a MIG slice of one."""

    def __init__(self, handle: Any, gpu: GpuSample, instance: int | None = None) -> None:
        self.handle = handle
        self.gpu = gpu  # constant fields, and the last known memory sizes
        self.instance = instance
        self.readings: dict[str, Any] = {}
        self.read_at: dict[str, float] = {}
        self.has_memory_v2 = True


class _Board:
    """A physical GPU with its units: itself, or its slices if MIG is enabled."""

    def __init__(self, index: int, handle: Any, uuid: str, pci: str, units: list[_Unit]) -> None:
        self.index = index  # in NVML
        self.handle = handle
        self.uuid = uuid
        self.pci = pci
        self.units = units


class Nvml:
    """The initialized library. All methods raise Unusable if the driver does not work."""

    def __init__(self, now: float) -> None:
        self.note: str | None = None  # error of a GPU that could not be opened
        self._boards: list[_Board] = []
        self._enumerate_at = now
        self._broken: set[str] = set()
        self._events: Any = None
        self._listening: list[int] = []
        self._xids: list[Xid] = []
        self._locations: dict[str, GpuLocation] = {}  # by the UUID of a whole GPU
        _initialise()
        try:
            self._enumerate(now, reinitialize=False)
        except pynvml.NVMLError as error:
            self.close()
            raise _unusable(error) from None

    # -- readings ----------------------------------------------------------------------------

    def gpus(self, now: float) -> tuple[GpuSample, ...]:
        try:
            if now >= self._enumerate_at:
                # NVML updates its list of GPUs and slices only when it is initialized. That is
                # slow if no other program keeps the GPUs awake, so it is done only if necessary.
                self._enumerate(now, reinitialize=bool(self._broken))
            gpus = self._read_all()
            broken = {gpu.uuid for gpu in gpus if gpu.error}
            if broken - self._broken:  # check whether only a slice was removed
                self._enumerate(now, reinitialize=True)
                gpus = self._read_all()
                broken = {gpu.uuid for gpu in gpus if gpu.error}
            self._broken = broken
        except pynvml.NVMLError as error:
            raise _unusable(error) from None
        return gpus

    def slow_readings(self, now: float) -> list[Callable[[], None]]:
        """Return the slow readings that are due, one by one, so that requests fit in between."""
        due: list[Callable[[], None]] = []
        for unit in self._units():
            if unit.handle is None or unit.gpu.slice_of is not None:
                continue  # the driver has no readings of slices, only of the whole GPU
            for name, seconds, read in _GAUGES:
                if now - unit.read_at.get(name, -seconds) >= seconds:
                    unit.read_at[name] = now
                    due.append(partial(self._read_gauge, unit.gpu.uuid, name, read))
        return due

    def read_load(self, now: float) -> None:
        """Read utilization and power if the last readings are older than `_LOAD_SECONDS`."""
        for unit in self._units():
            if unit.handle is None or unit.gpu.slice_of is not None:
                continue
            for name, _, read in _GAUGES:
                if name in _LOAD and now - unit.read_at.get(name, -_LOAD_SECONDS) >= _LOAD_SECONDS:
                    unit.read_at[name] = now
                    self._read_gauge(unit.gpu.uuid, name, read)

    def xids(self) -> tuple[Xid, ...]:
        """Return the errors since the last call."""
        self._read_events()
        xids, self._xids = tuple(self._xids), []
        return xids

    def close(self) -> None:
        self._unregister_events()
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            pass

    def _units(self) -> Iterator[_Unit]:
        """Yield GPUs, then slices, in the order of their numbers."""
        for sliced in (False, True):
            for board in self._boards:
                yield from (u for u in board.units if (u.gpu.slice_of is not None) is sliced)

    def _read_all(self) -> tuple[GpuSample, ...]:
        return tuple(map(_read, self._units()))

    def _read_gauge(self, uuid: str, name: str, read: Callable[[Any], Any]) -> None:
        # By UUID, because handles become invalid when the GPUs are enumerated again.
        for unit in self._units():
            if unit.gpu.uuid == uuid and unit.handle is not None:
                try:
                    unit.readings[name] = read(unit.handle)
                    if name == "utilisation":
                        unit.readings["load_at"] = time.monotonic()
                except (pynvml.NVMLError, *_LACKING):
                    unit.readings[name] = None

    # -- enumeration -------------------------------------------------------------------------

    def _enumerate(self, now: float, reinitialize: bool) -> None:
        if reinitialize:
            self.close()
            _initialise()
        known = {board.uuid: board for board in self._boards}
        boards: list[_Board] = []
        failures: dict[int, pynvml.NVMLError] = {}
        total = pynvml.nvmlDeviceGetCount()
        for index in range(total):
            try:
                boards.append(_open(index, pynvml.nvmlDeviceGetHandleByIndex(index)))
            except pynvml.NVMLError as error:
                failures[index] = error
        for board in boards:
            _keep_readings(board, known.pop(board.uuid, None))
        for board in known.values():
            if board.index in failures:
                _mark_lost(board, _describe(failures.pop(board.index)))
                boards.append(board)
        self._boards = sorted(boards, key=lambda board: (len(board.pci), board.pci))
        self._number(total, holes=set(failures))
        self._locate()
        self.note = next(
            (f"GPU {i} cannot be opened: {_describe(error)}" for i, error in failures.items()), None
        )
        self._enumerate_at = now + _ENUMERATE_SECONDS
        self._register_events()

    def _number(self, total: int, holes: set[int]) -> None:
        """Number the units like nvidia-smi, which also counts GPUs with slices or errors."""
        numbers = (number for number in count() if number not in holes)
        slice_numbers = count(total)
        for board in self._boards:
            number = next(numbers)
            for unit in board.units:
                gpu = unit.gpu
                if gpu.slice_of is None:
                    unit.gpu = gpu._replace(number=number, visible=str(number))
                else:
                    unit.gpu = gpu._replace(number=next(slice_numbers), visible=gpu.uuid)

    def _locate(self) -> None:
        """Add how the GPUs are connected. Read again only when other GPUs are found."""
        opened = {board.uuid: board for board in self._boards if board.handle is not None}
        if not opened.keys() <= self._locations.keys():
            self._locations = read_locations(
                {uuid: board.handle for uuid, board in opened.items()},
                {uuid: board.pci for uuid, board in opened.items()},
            )
        for board in self._boards:
            place = self._locations.get(board.uuid, GpuLocation())
            for unit in board.units:
                # NVLink does not connect slices.
                links = place.links if unit.gpu.slice_of is None else ()
                unit.gpu = unit.gpu._replace(numa=place.numa, cpus=place.cpus, links=links)

    # -- events ------------------------------------------------------------------------------

    def _register_events(self) -> None:
        boards = [board for board in self._boards if board.handle is not None]
        listening = [_address_of(board.handle) for board in boards]
        if self._events is not None and listening == self._listening:
            return
        self._unregister_events()
        try:
            self._events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            return
        self._listening = listening
        for board in boards:
            try:
                pynvml.nvmlDeviceRegisterEvents(
                    board.handle, pynvml.nvmlEventTypeXidCriticalError, self._events
                )
            except pynvml.NVMLError:
                pass  # not every GPU reports events

    def _unregister_events(self) -> None:
        if self._events is None:
            return
        self._read_events()
        try:
            pynvml.nvmlEventSetFree(self._events)
        except pynvml.NVMLError:
            pass
        self._events = None

    def _read_events(self) -> None:
        for _ in range(_MAX_XIDS if self._events is not None else 0):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError:  # usually Timeout: no more events
                return
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                self._xids += self._events_of(event)

    def _events_of(self, event: Any) -> Iterator[Xid]:
        """Yield the error for each slice that it belongs to, else for the GPU."""
        address = _address_of(event.device)
        for board in self._boards:
            if board.handle is not None and _address_of(board.handle) == address:
                slices = [u for u in board.units if u.instance == event.gpuInstanceId]
                for uuid in [unit.gpu.uuid for unit in slices] or [board.uuid]:
                    yield Xid(uuid, int(event.eventData))


def _initialise() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise _unusable(error) from None


def _open(index: int, handle: Any) -> _Board:
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    pci = _sysfs_address(pynvml.nvmlDeviceGetPciInfo(handle).busId)

    def unit(of: Any, slice_of: str | None, instance: int | None) -> _Unit:
        name, model = pynvml.nvmlDeviceGetUUID(of), pynvml.nvmlDeviceGetName(of)
        return _Unit(of, GpuSample(name, 0, "", model, pci, 0, 0, 0, slice_of), instance)

    if not _has_slices(handle):
        return _Board(index, handle, uuid, pci, [unit(handle, None, None)])
    slices = [
        unit(part, uuid, _optional(pynvml.nvmlDeviceGetGpuInstanceId, part))
        for part in _slices(handle)
    ]
    return _Board(index, handle, uuid, pci, slices)


def _has_slices(handle: Any) -> bool:
    mode = _optional(pynvml.nvmlDeviceGetMigMode, handle)  # now, and after the next reset
    return mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def _slices(handle: Any) -> Iterator[Any]:
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
            pass  # indices can have gaps


def _keep_readings(board: _Board, before: _Board | None) -> None:
    units = {unit.gpu.uuid: unit for unit in before.units} if before else {}
    for unit in board.units:
        same = units.get(unit.gpu.uuid)
        if same is not None:
            unit.readings, unit.read_at = same.readings, same.read_at
            unit.has_memory_v2 = same.has_memory_v2


def _mark_lost(board: _Board, error: str) -> None:
    board.handle = None
    for unit in board.units:
        unit.handle = None
        unit.readings.clear()
        unit.read_at.clear()
        unit.gpu = unit.gpu._replace(error=error)


def _read(unit: _Unit) -> GpuSample:
    if unit.handle is None:
        return unit.gpu
    try:
        total, reserved, used = _memory(unit)
        processes = _processes(unit.handle)
    except pynvml.NVMLError_Uninitialized:
        raise
    except pynvml.NVMLError as error:
        return unit.gpu._replace(error=_describe(error))
    unit.gpu = unit.gpu._replace(total=total, reserved=reserved)
    return unit.gpu._replace(used=used, processes=processes, **unit.readings)


def _memory(unit: _Unit) -> tuple[int, int, int]:
    """Return total, reserved, and used memory without the reserved part."""
    if unit.has_memory_v2:
        try:
            memory = pynvml.nvmlDeviceGetMemoryInfo(unit.handle, version=pynvml.nvmlMemory_v2)
            return memory.total, memory.reserved, memory.used
        except (*_LACKING, pynvml.NVMLError_ArgumentVersionMismatch):
            unit.has_memory_v2 = False
    # The first version counts reserved memory as used, about 600 MB on an idle GPU. That is safe:
    # it reports too little free memory.
    memory = _optional(pynvml.nvmlDeviceGetMemoryInfo, unit.handle)
    # GPUs that share the memory of the host report none of their own.
    return (0, 0, 0) if memory is None else (memory.total, 0, memory.used)


def _processes(handle: Any) -> tuple[GpuProcess, ...]:
    found: dict[int, GpuProcess] = {}
    for functions, compute in ((_GRAPHICS, False), (_COMPUTE, True)):  # in both lists: compute
        for process in _first_available(functions, handle):
            before, memory = found.get(process.pid), process.usedGpuMemory
            if memory is None and before is not None:
                memory = before.memory
            found[process.pid] = GpuProcess(process.pid, memory, compute)
    return tuple(found[pid] for pid in sorted(found))


def _first_available(functions: tuple[str, ...], handle: Any) -> list[Any]:
    for function in functions:
        if not hasattr(pynvml, function):  # older nvidia-ml-py
            continue
        try:
            processes: list[Any] | None = _optional(getattr(pynvml, function), handle)
        except pynvml.NVMLError_NoPermission:
            continue  # their memory still counts as used
        if processes is not None:
            return processes
    return []


def _optional(call: Callable[[Any], Any], handle: Any) -> Any:
    try:
        return call(handle)
    except _LACKING:
        return None


def _sysfs_address(address: str) -> str:
    """
    >>> _sysfs_address("00000000:C1:00.0"), _sysfs_address("00010000:3B:00.0")
    ('0000:c1:00.0', '10000:3b:00.0')
    """
    domain, _, rest = address.partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"


def _address_of(handle: Any) -> int:
    """Return the address of a handle, because ctypes compares pointers by object identity."""
    return ctypes.addressof(handle.contents)


def _describe(error: pynvml.NVMLError) -> str:
    if isinstance(error, pynvml.NVMLError_GpuIsLost):
        return "GPU is lost"
    if isinstance(error, pynvml.NVMLError_ResetRequired):
        return "GPU needs a reset"
    return f"the driver reports: {error}"


def _unusable(error: pynvml.NVMLError) -> Unusable:
    if isinstance(error, pynvml.NVMLError_LibraryNotFound):
        return Unusable("no NVIDIA driver is installed: libnvidia-ml.so.1 was not found")
    if isinstance(error, pynvml.NVMLError_DriverNotLoaded):
        return Unusable("the NVIDIA driver is not loaded")
    if isinstance(error, pynvml.NVMLError_LibRmVersionMismatch):
        return Unusable(
            "the NVIDIA library and the loaded driver have different versions; reboot the host",
            needs_reload=True,
        )
    if isinstance(error, pynvml.NVMLError_NoPermission):
        return Unusable("no permission to use the NVIDIA driver; see /dev/nvidiactl")
    return Unusable(f"the NVIDIA driver does not work: {error}")
