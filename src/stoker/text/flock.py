"""The C structure `flock` of fcntl(2) on 64-bit Linux."""

from __future__ import annotations

import struct

FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, pid
