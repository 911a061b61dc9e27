"""How much GPU memory a program wanted, from the error of its library.

library     message
----------  ------------------------------------------------------------------------------------
PyTorch     Tried to allocate 150.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which ...
            this process has 2.10 GiB memory in use. Of the allocated memory 1.40 GiB is ...
PyTorch 1   Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 9.60 GiB already allocated
JAX         Out of memory while trying to allocate 161061273600 bytes.
CuPy        Out of memory allocating 161,061,273,600 bytes (allocated so far: 512 bytes).
TensorFlow  OOM when allocating tensor with shape[40000,1000000] and type float on ...
            failed to allocate 150.00GiB (161061273600 bytes) from device
"""

from __future__ import annotations

import re
from math import prod

from stoker.record import Record

_UNITS = {"": 1, "B": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = r"(\d[\d,]*(?:\.\d+)?) ?(bytes|[KMGT]iB|B)"
_WANTED = re.compile(
    rf"(?:tried to allocate|trying to allocate|allocating|to allocate) {_SIZE}", re.I
)
_IN_USE = re.compile(rf"this process has {_SIZE} memory in use", re.IGNORECASE)
_ALLOCATED = re.compile(
    rf"(?:of the allocated memory {_SIZE}|{_SIZE} already allocated|allocated so far: {_SIZE})",
    re.IGNORECASE,
)
_TENSOR = re.compile(
    r"oom when allocating tensor with shape ?\[([\d, ]+)\] and type (\w+)", re.IGNORECASE
)
_TYPE_BYTES = {
    "double": 8,
    "int64": 8,
    "uint64": 8,
    "complex64": 8,
    "complex128": 16,
    "float": 4,
    "int32": 4,
    "uint32": 4,
    "half": 2,
    "bfloat16": 2,
    "int16": 2,
    "uint16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
_TAIL_BYTES = 64 * 1024


class OomMessage(Record):
    """The memory of the failed allocation and of those before it, in bytes."""

    wanted: int
    allocated: int = 0  # by the program's tensors; it needs at least `wanted` more
    in_use: int = 0  # by the process, with its CUDA context and cache

    @property
    def least(self) -> int:
        """Bytes that a GPU must have for this program; with less it fails on any GPU."""
        return self.wanted + self.allocated

    @property
    def enough(self) -> int:
        """Bytes with which this allocation would have succeeded."""
        return self.wanted + max(self.in_use, self.allocated)


def parse_oom(tail: bytes) -> OomMessage | None:
    """Return what the last message about GPU memory in a log says; None if none has a size."""
    text = tail[-_TAIL_BYTES:].decode("utf-8", "replace")
    for line in reversed(text.splitlines()):
        message = _parse_line(line)
        if message is not None:
            return message
    return None


def _parse_line(line: str) -> OomMessage | None:
    if "alloc" not in line:
        return None
    tensor = _TENSOR.search(line)
    if tensor is not None:
        width = _TYPE_BYTES.get(tensor[2].lower())
        if width is None:
            return None
        return OomMessage(width * prod(int(n) for n in tensor[1].split(",") if n.strip()))
    wanted = _WANTED.search(line)
    if wanted is None:
        return None
    return OomMessage(_bytes(wanted), _bytes(_ALLOCATED.search(line)), _bytes(_IN_USE.search(line)))


def _bytes(match: re.Match[str] | None) -> int:
    if match is None:
        return 0
    number, unit = [group for group in match.groups() if group is not None][:2]
    by_name = {name.lower(): size for name, size in _UNITS.items()}
    return int(float(number.replace(",", "")) * by_name[unit.lower()])
