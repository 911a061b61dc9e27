"""The driver of NVIDIA's GPUs, through its library NVML."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count

from stoker.engine.devices.driver import Driver, Unusable
from stoker.engine.gpus.sample import GpuFault, GpuProcess, GpuSample
from stoker.engine.model import Device
from stoker.record import Record
from stoker.text.cpu_list import format_cpu_list, parse_cpu_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The binding. Loaded when the driver is opened: that takes as long as a whole command of Stoker.
pynvml: Any = None

_GPUS_FOLDER = "/proc/driver/nvidia/gpus"
_DRIVER_FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")
_ENUMERATE_SECONDS = 30.0
_MAX_XIDS = 64
# Application faults and notices; the hardware is fine (NVIDIA's catalog of Xid errors).
_HARMLESS_XIDS = frozenset({13, 31, 43, 45, 68, 94})

_BITS = 64  # of an unsigned long
_CPU_WORDS = 128  # for 8192 CPUs, the most that Linux supports
_NODE_WORDS = 16  # for 1024 NUMA nodes
_ONLINE_NODES = "/sys/devices/system/node/online"


def _lacking() -> tuple[type[Exception], ...]:
    """Errors for features that a GPU, a driver or an older library does not have."""
    return (
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


class NvidiaDriver(Driver):
    vendor = "NVIDIA"

    def __init__(self, now: float) -> None:
        self._boards: list[_Board] = []
        self._enumerate_at = now
        self._broken: set[str] = set()
        self._events: Any = None
        self._listening: list[int] = []
        self._faults: list[GpuFault] = []
        self._locations: dict[str, _Location] = {}  # by the UUID of a whole GPU
        _load()
        _initialise()
        try:
            self._enumerate(now, reinitialize=False)
        except pynvml.NVMLError as error:
            self.close()
            raise _unusable(error) from None

    @staticmethod
    def is_present() -> bool:
        """STOKER_NVML=1 or 0 overrides what the files of the driver say."""
        override = os.environ.get("STOKER_NVML")
        if override in ("0", "1"):
            return override == "1"
        return any(os.path.exists(path) for path in _DRIVER_FILES)

    @staticmethod
    def listed_devices() -> tuple[Device, ...]:
        """The GPUs in /proc in PCI order, like CUDA_DEVICE_ORDER=PCI_BUS_ID."""
        try:
            addresses = sorted(os.listdir(_GPUS_FOLDER))
        except OSError:
            return ()
        devices = []
        for index, address in enumerate(addresses):
            info = _information(os.path.join(_GPUS_FOLDER, address, "information"))
            devices.append(
                Device(index, str(index), 1, info.get("Model", "GPU"), info.get("GPU UUID", ""))
            )
        return tuple(devices)

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
        from functools import partial

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
        for unit in self._units():
            if unit.handle is None or unit.gpu.slice_of is not None:
                continue
            for name, _, read in _GAUGES:
                if name in _LOAD and now - unit.read_at.get(name, -_LOAD_SECONDS) >= _LOAD_SECONDS:
                    unit.read_at[name] = now
                    self._read_gauge(unit.gpu.uuid, name, read)

    def take_faults(self) -> tuple[GpuFault, ...]:
        self._read_events()
        faults, self._faults = tuple(self._faults), []
        return faults

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
                except (pynvml.NVMLError, *_lacking()):
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
            self._locations = _read_locations(
                {uuid: board.handle for uuid, board in opened.items()},
                {uuid: board.pci for uuid, board in opened.items()},
            )
        for board in self._boards:
            place = self._locations.get(board.uuid, _Location())
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
                self._faults += self._faults_of(event)

    def _faults_of(self, event: Any) -> Iterator[GpuFault]:
        """Yield the fault for each slice that it belongs to, else for the GPU."""
        address = _address_of(event.device)
        for board in self._boards:
            if board.handle is not None and _address_of(board.handle) == address:
                slices = [u for u in board.units if u.instance == event.gpuInstanceId]
                for uuid in [unit.gpu.uuid for unit in slices] or [board.uuid]:
                    code = int(event.eventData)
                    yield GpuFault(uuid, f"Xid {code}", code in _HARMLESS_XIDS)


def _load() -> None:
    global pynvml
    try:
        import pynvml as binding  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        text = f"the Python package nvidia-ml-py is missing ({error})"
        raise Unusable(text, needs_reload=True) from None
    pynvml = binding


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
        except (*_lacking(), pynvml.NVMLError_ArgumentVersionMismatch):
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
    except _lacking():
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
    import ctypes

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


def _information(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            pairs = [line.partition(":") for line in file]
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in pairs}


# -- where the GPUs are ----------------------------------------------------------------------------
# A value that the driver does not report is left out: placement then ignores it.


class _Location(Record):
    """Where a GPU is in the host."""

    numa: int | None = None  # its NUMA node
    cpus: str = ""  # the CPUs near it; empty on a host with one NUMA node
    links: tuple[str, ...] = ()  # UUIDs of the GPUs that NVLink connects with it


def _read_locations(handles: Mapping[str, Any], pci: Mapping[str, str]) -> dict[str, _Location]:
    """Return the location of each GPU; handles and PCI addresses are by UUID."""
    nodes = {uuid: _numa_node(handle, pci[uuid]) for uuid, handle in handles.items()}
    # A container may hide the NUMA nodes of the host in sysfs, but not from the driver.
    has_several = _has_several_nodes() or any(nodes.values())
    links = _links(handles)
    return {
        uuid: _Location(
            numa=nodes[uuid],
            cpus=_near_cpus(handle) if has_several else "",
            links=tuple(sorted(links[uuid])),
        )
        for uuid, handle in handles.items()
    }


def _links(handles: Mapping[str, Any]) -> dict[str, set[str]]:
    """The GPUs that NVLink connects, directly or through a switch."""
    links: dict[str, set[str]] = {uuid: set() for uuid in handles}
    uuids = list(handles)
    for place, first in enumerate(uuids):
        for second in uuids[place + 1 :]:
            if _is_linked(handles[first], handles[second]):
                links[first].add(second)
                links[second].add(first)
    return links


def _is_linked(first: Any, second: Any) -> bool:
    status = _reported(
        lambda: pynvml.nvmlDeviceGetP2PStatus(first, second, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    )
    return bool(status == pynvml.NVML_P2P_STATUS_OK)


def _numa_node(handle: Any, pci: str) -> int | None:
    words = _reported(
        lambda: pynvml.nvmlDeviceGetMemoryAffinity(
            handle, _NODE_WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE
        )
    )
    nodes = _bits(words or ())
    if len(nodes) == 1:
        return nodes[0]
    try:
        with open(f"/sys/bus/pci/devices/{pci}/numa_node", encoding="ascii") as file:
            node = int(file.read())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None  # -1: unknown


def _near_cpus(handle: Any) -> str:
    words = _reported(lambda: pynvml.nvmlDeviceGetCpuAffinity(handle, _CPU_WORDS))
    return format_cpu_list(_bits(words or ()))


def _bits(words: Iterable[int]) -> list[int]:
    return [
        number * _BITS + bit
        for number, word in enumerate(words)
        if word
        for bit in range(_BITS)
        if word >> bit & 1
    ]


def _reported(call: Callable[[], Any]) -> Any:
    try:
        return call()
    # AttributeError: older nvidia-ml-py; the errors of some newer functions are not NVMLError.
    except (pynvml.NVMLError, AttributeError, *_lacking()):
        return None


def _has_several_nodes() -> bool:
    try:
        with open(_ONLINE_NODES, encoding="ascii") as file:
            return len(parse_cpu_list(file.read().strip())) > 1
    except (OSError, ValueError):
        return False
