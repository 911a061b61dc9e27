"""The cards as NVML, the driver's library, shows them.

Any call in here can block for as long as the driver likes, also beyond SIGKILL. Only the watcher's
process comes here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import pynvml  # type: ignore[import-untyped]

from stoker.core.gpus.sample import GpuProcess, GpuSample, Xid

_LOOK_SECONDS = 30.0
_MAX_XIDS = 64

# What a card, a driver or an older library may lack.
_LACKING = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    # What newer nvidia-ml-py raises instead of FunctionNotFound from some of its functions.
    getattr(pynvml, "NVMLLibraryMismatchError", pynvml.NVMLError_FunctionNotFound),
)

# Name in Card, seconds between two readings, how to read. Each takes the driver some milliseconds.
_GAUGES: tuple[tuple[str, float, Callable[[Any], float]], ...] = (
    ("utilisation", 2.0, lambda card: pynvml.nvmlDeviceGetUtilizationRates(card).gpu),
    ("power", 2.0, lambda card: pynvml.nvmlDeviceGetPowerUsage(card) / 1000),
    (
        "temperature",
        2.0,
        lambda card: pynvml.nvmlDeviceGetTemperature(card, pynvml.NVML_TEMPERATURE_GPU),
    ),
    ("energy", 10.0, lambda card: pynvml.nvmlDeviceGetTotalEnergyConsumption(card) / 1000),
    (
        "ecc_errors",
        10.0,
        lambda card: pynvml.nvmlDeviceGetTotalEccErrors(
            card, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        ),
    ),
)

_COMPUTE = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
_GRAPHICS = ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2")


class Unusable(Exception):
    """The driver as a whole cannot be used, for a reason in one sentence.

    `needs_reload`: the library that this process has loaded is part of the problem.
    """

    def __init__(self, text: str, needs_reload: bool = False) -> None:
        super().__init__(text)
        self.needs_reload = needs_reload


class _Unit:
    """What jobs can be given: a card, or a slice of one."""

    def __init__(self, handle: Any, card: GpuSample, instance: int | None = None) -> None:
        self.handle = handle
        self.card = card  # what does not change, and the sizes as last seen
        self.instance = instance
        self.readings: dict[str, Any] = {}
        self.read_at: dict[str, float] = {}
        self.has_memory_v2 = True


class _Board:
    """A physical card with its units: itself, or its slices when MIG is on."""

    def __init__(self, index: int, handle: Any, uuid: str, pci: str, units: list[_Unit]) -> None:
        self.index = index  # NVML's
        self.handle = handle
        self.uuid = uuid
        self.pci = pci
        self.units = units


class Nvml:
    """An initialised library. Raises Unusable, at first or later, when the driver does not work."""

    def __init__(self, now: float) -> None:
        self.note: str | None = None  # of a card that could never be opened
        self._boards: list[_Board] = []
        self._look_at = now
        self._troubled: set[str] = set()
        self._events: Any = None
        self._listening: list[int] = []
        self._xids: list[Xid] = []
        _initialise()
        try:
            self._look(now, anew=False)
        except pynvml.NVMLError as error:
            self.close()
            raise _unusable(error) from None

    # -- what changes ------------------------------------------------------------------------

    def cards(self, now: float) -> tuple[GpuSample, ...]:
        try:
            if now >= self._look_at:
                # NVML finds cards, and forgets slices, when it is initialised. That is not free
                # where nothing else keeps the cards awake, so only in need.
                self._look(now, anew=bool(self._troubled))
            cards = self._read_all()
            troubled = {card.uuid for card in cards if card.trouble}
            if troubled - self._troubled:  # lost, or only a slice that was removed?
                self._look(now, anew=True)
                cards = self._read_all()
                troubled = {card.uuid for card in cards if card.trouble}
            self._troubled = troubled
        except pynvml.NVMLError as error:
            raise _unusable(error) from None
        return cards

    def chores(self, now: float) -> list[Callable[[], None]]:
        """Slow readings that are due, one by one, so that urgent work fits in between."""
        due: list[Callable[[], None]] = []
        for unit in self._units():
            if unit.handle is None or unit.card.slice_of is not None:
                continue  # of slices the driver tells nothing, and the card's belong to all
            for name, seconds, read in _GAUGES:
                if now - unit.read_at.get(name, -seconds) >= seconds:
                    unit.read_at[name] = now
                    due.append(partial(self._read_gauge, unit.card.uuid, name, read))
        return due

    def xids(self) -> tuple[Xid, ...]:
        """Errors since the last call."""
        self._hear_events()
        xids, self._xids = tuple(self._xids), []
        return xids

    def close(self) -> None:
        self._stop_listening()
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            pass

    def _units(self) -> Iterator[_Unit]:
        """Cards, then slices: in the order of their numbers."""
        for sliced in (False, True):
            for board in self._boards:
                yield from (u for u in board.units if (u.card.slice_of is not None) is sliced)

    def _read_all(self) -> tuple[GpuSample, ...]:
        return tuple(map(_read, self._units()))

    def _read_gauge(self, uuid: str, name: str, read: Callable[[Any], float]) -> None:
        # By name: the cards may have been looked for anew since, and old handles are not valid.
        for unit in self._units():
            if unit.card.uuid == uuid and unit.handle is not None:
                try:
                    unit.readings[name] = read(unit.handle)
                except (pynvml.NVMLError, *_LACKING):
                    unit.readings[name] = None

    # -- what there is -----------------------------------------------------------------------

    def _look(self, now: float, anew: bool) -> None:
        if anew:
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
                _mark_lost(board, _words(failures.pop(board.index)))
                boards.append(board)
        self._boards = sorted(boards, key=lambda board: (len(board.pci), board.pci))
        self._number(total, holes=set(failures))
        self.note = next(
            (f"GPU {i} cannot be opened: {_words(error)}" for i, error in failures.items()), None
        )
        self._look_at = now + _LOOK_SECONDS
        self._listen()

    def _number(self, total: int, holes: set[int]) -> None:
        """As nvidia-smi counts: also cards that are divided, and those that cannot be opened."""
        numbers = (number for number in count() if number not in holes)
        slice_numbers = count(total)
        for board in self._boards:
            number = next(numbers)
            for unit in board.units:
                card = unit.card
                if card.slice_of is None:
                    unit.card = card._replace(number=number, visible=str(number))
                else:
                    unit.card = card._replace(number=next(slice_numbers), visible=card.uuid)

    # -- events ------------------------------------------------------------------------------

    def _listen(self) -> None:
        boards = [board for board in self._boards if board.handle is not None]
        listening = [_address_of(board.handle) for board in boards]
        if self._events is not None and listening == self._listening:
            return
        self._stop_listening()
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
                pass  # not every card reports them

    def _stop_listening(self) -> None:
        if self._events is None:
            return
        self._hear_events()
        try:
            pynvml.nvmlEventSetFree(self._events)
        except pynvml.NVMLError:
            pass
        self._events = None

    def _hear_events(self) -> None:
        for _ in range(_MAX_XIDS if self._events is not None else 0):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError:  # above all Timeout: no more of them
                return
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                self._xids += self._blame(event)

    def _blame(self, event: Any) -> Iterator[Xid]:
        """The slices that an error belongs to, else the card."""
        address = _address_of(event.device)
        for board in self._boards:
            if board.handle is not None and _address_of(board.handle) == address:
                slices = [u for u in board.units if u.instance == event.gpuInstanceId]
                for uuid in [unit.card.uuid for unit in slices] or [board.uuid]:
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

    if not _is_divided(handle):
        return _Board(index, handle, uuid, pci, [unit(handle, None, None)])
    slices = [
        unit(part, uuid, _optional(pynvml.nvmlDeviceGetGpuInstanceId, part))
        for part in _slices(handle)
    ]
    return _Board(index, handle, uuid, pci, slices)


def _is_divided(handle: Any) -> bool:
    mode = _optional(pynvml.nvmlDeviceGetMigMode, handle)  # now, and after the next reset
    return mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def _slices(handle: Any) -> Iterator[Any]:
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
            pass  # there can be gaps


def _keep_readings(board: _Board, before: _Board | None) -> None:
    units = {unit.card.uuid: unit for unit in before.units} if before else {}
    for unit in board.units:
        same = units.get(unit.card.uuid)
        if same is not None:
            unit.readings, unit.read_at = same.readings, same.read_at
            unit.has_memory_v2 = same.has_memory_v2


def _mark_lost(board: _Board, trouble: str) -> None:
    board.handle = None
    for unit in board.units:
        unit.handle = None
        unit.readings.clear()
        unit.read_at.clear()
        unit.card = unit.card._replace(trouble=trouble)


def _read(unit: _Unit) -> GpuSample:
    if unit.handle is None:
        return unit.card
    try:
        total, reserved, used = _memory(unit)
        processes = _processes(unit.handle)
    except pynvml.NVMLError_Uninitialized:
        raise
    except pynvml.NVMLError as error:
        return unit.card._replace(trouble=_words(error))
    unit.card = unit.card._replace(total=total, reserved=reserved)
    return unit.card._replace(used=used, processes=processes, **unit.readings)


def _memory(unit: _Unit) -> tuple[int, int, int]:
    """(total, reserved, used without what is reserved)."""
    if unit.has_memory_v2:
        try:
            memory = pynvml.nvmlDeviceGetMemoryInfo(unit.handle, version=pynvml.nvmlMemory_v2)
            return memory.total, memory.reserved, memory.used
        except (*_LACKING, pynvml.NVMLError_ArgumentVersionMismatch):
            unit.has_memory_v2 = False
    # The first version does not say what is reserved and counts it as used, some 600 MB on a card
    # that nobody uses. We cannot tell them apart and leave it so: too little free is the safe side.
    memory = _optional(pynvml.nvmlDeviceGetMemoryInfo, unit.handle)
    # Cards that share the host's memory know of no memory of their own.
    return (0, 0, 0) if memory is None else (memory.total, 0, memory.used)


def _processes(handle: Any) -> tuple[GpuProcess, ...]:
    found: dict[int, GpuProcess] = {}
    for functions, compute in ((_GRAPHICS, False), (_COMPUTE, True)):  # a pid in both is the latter
        for process in _first_available(functions, handle):
            before, memory = found.get(process.pid), process.usedGpuMemory
            if memory is None and before is not None:
                memory = before.memory
            found[process.pid] = GpuProcess(process.pid, memory, compute)
    return tuple(found[pid] for pid in sorted(found))


def _first_available(functions: tuple[str, ...], handle: Any) -> list[Any]:
    for function in functions:
        if not hasattr(pynvml, function):  # an older nvidia-ml-py
            continue
        try:
            processes: list[Any] | None = _optional(getattr(pynvml, function), handle)
        except pynvml.NVMLError_NoPermission:
            continue  # their memory is counted as used all the same
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
    """Handles are pointers, which ctypes compares by identity of its own objects."""
    return ctypes.addressof(handle.contents)


def _words(error: pynvml.NVMLError) -> str:
    if isinstance(error, pynvml.NVMLError_GpuIsLost):
        return "GPU is lost"
    if isinstance(error, pynvml.NVMLError_ResetRequired):
        return "GPU needs a reset"
    return f"the driver says: {error}"


def _unusable(error: pynvml.NVMLError) -> Unusable:
    if isinstance(error, pynvml.NVMLError_LibraryNotFound):
        return Unusable("no NVIDIA driver is installed: libnvidia-ml.so.1 was not found")
    if isinstance(error, pynvml.NVMLError_DriverNotLoaded):
        return Unusable("the NVIDIA driver is not loaded")
    if isinstance(error, pynvml.NVMLError_LibRmVersionMismatch):
        return Unusable(
            "the NVIDIA library and the loaded driver are of different versions; a reboot helps",
            needs_reload=True,
        )
    if isinstance(error, pynvml.NVMLError_NoPermission):
        return Unusable("no permission to use the NVIDIA driver; see /dev/nvidiactl")
    return Unusable(f"the NVIDIA driver does not work: {error}")
