"""Builds TensorBoard event files byte by byte, from the description of the format."""

from __future__ import annotations

import struct

from stoker.features.results.reports.event_files import masked_crc

HEADER_EVENT = b"\x09" + struct.pack("<d", 1.0) + b"\x1a\x0dbrain.Event:2"


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return (
        length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))
    )


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def block(field: int, data: bytes) -> bytes:
    """A field with bytes or an inner message."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def event(step: int, *values: bytes, at: float = 100.0) -> bytes:
    summary = b"".join(block(1, value) for value in values)
    return b"\x09" + struct.pack("<d", at) + b"\x10" + varint(step) + block(5, summary)


def simple(tag: str, number: float) -> bytes:
    """A value as PyTorch writes it."""
    return block(1, tag.encode()) + b"\x15" + struct.pack("<f", number)


def tensor(tag: str, kind: int, body: bytes, *dimensions: int) -> bytes:
    """A value as TensorFlow 2 writes it."""
    shape = b"".join(block(2, b"\x08" + varint(size)) for size in dimensions)
    return block(1, tag.encode()) + block(8, b"\x08" + varint(kind) + block(2, shape) + body)


def scalars(tag: str, numbers: dict[int, float]) -> bytes:
    """A whole event file with one tag."""
    events = [event(step, simple(tag, number), at=100.0 + step) for step, number in numbers.items()]
    return b"".join(map(record, (HEADER_EVENT, *events)))
