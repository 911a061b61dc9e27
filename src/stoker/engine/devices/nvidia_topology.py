"""How the GPUs are connected, from NVML: NVLink between GPUs, NUMA nodes, CPUs near a GPU.

Only the NVML process uses this module, because any call of the driver can hang. A value that the
driver does not report is left out: placement then ignores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pynvml  # type: ignore[import-untyped]

from stoker.record import Record
from stoker.text.cpu_list import format_cpu_list, parse_cpu_list

_BITS = 64  # of an unsigned long
_CPU_WORDS = 128  # for 8192 CPUs, the most that Linux supports
_NODE_WORDS = 16  # for 1024 NUMA nodes
_ONLINE_NODES = "/sys/devices/system/node/online"
# Some functions of newer nvidia-ml-py raise errors that are not NVMLError.
_ERRORS = (
    pynvml.NVMLError,
    AttributeError,  # older nvidia-ml-py
    getattr(pynvml, "NVMLLibraryMismatchError", pynvml.NVMLError),
)


class GpuLocation(Record):
    """Where a GPU is in the host."""

    numa: int | None = None  # its NUMA node
    cpus: str = ""  # the CPUs near it; empty on a host with one NUMA node
    links: tuple[str, ...] = ()  # UUIDs of the GPUs that NVLink connects with it


def read_locations(handles: Mapping[str, Any], pci: Mapping[str, str]) -> dict[str, GpuLocation]:
    """Return the location of each GPU; handles and PCI addresses are by UUID."""
    nodes = {uuid: _numa_node(handle, pci[uuid]) for uuid, handle in handles.items()}
    # A container may hide the NUMA nodes of the host in sysfs, but not from the driver.
    has_several = _has_several_nodes() or any(nodes.values())
    links = _links(handles)
    return {
        uuid: GpuLocation(
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
    except _ERRORS:
        return None


def _has_several_nodes() -> bool:
    try:
        with open(_ONLINE_NODES, encoding="ascii") as file:
            return len(parse_cpu_list(file.read().strip())) > 1
    except (OSError, ValueError):
        return False
