"""Read the scalars of TensorBoard event files (tfevents) as reports.

An event file is a sequence of TFRecords: the length of a record, its checksum, the record, and the
checksum of the record. A record is a protocol buffer (`Event`) with a time, a step and a summary;
the values of a summary have a tag and a number (`simple_value`) or a tensor without dimensions.
Everything else (images, histograms, graphs) is skipped. Only this subset of the format is decoded
here, so neither TensorBoard nor protobuf is needed.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping

from stoker.features.results.reports.report_files import Reader, whole
from stoker.text.progress.report_line import RESERVED, Report

MARK = "tfevents"  # part of the name of every event file
MAX_RECORD_BYTES = 1 << 20  # larger records hold images or graphs, and are skipped
MAX_FILES = 32  # of one job
MAX_BYTES = 32 << 20  # of records that are decoded for one job; the rest is not read
_MAX_CHECKED_BYTES = 1024  # a checksum in Python takes longer than decoding a large record
_MAX_NAME = 200
_HEADER = 12
_LENGTH = struct.Struct("<QI")
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
_CHECKSUM = struct.Struct("<I")
_NOT_IN_NAMES = re.compile(r"[^\w./@-]")
# Folders that Keras and others write beside each other, with the same tags in each.
_SPLITS = frozenset(
    ("train", "training", "val", "valid", "validation", "test", "eval", "evaluation")
)
# TensorFlow's numbers of data types: how one value is packed in `tensor_content`.
_CONTENT = {
    1: "<f",
    2: "<d",
    3: "<i",
    4: "<B",
    5: "<h",
    6: "<b",
    9: "<q",
    10: "<?",
    17: "<H",
    19: "<e",
    22: "<I",
    23: "<Q",
}
_BFLOAT16 = 14
# Fields of a tensor with a list of values: how one is packed; "" for a varint.
_VALUE_FIELDS = {5: "<f", 6: "<d", 7: "", 10: "", 11: "", 16: "", 17: ""}


class _Damaged(ValueError):
    pass


class EventReader(Reader):
    """Parses the bytes of one growing event file; chunks may be cut anywhere.

    The caller continues at `position`, which may be beyond the end of the last chunk: large records
    are skipped. A record with a wrong checksum is skipped; after a wrong length nothing more can be
    read, and `position` stays before it, since a file on a network may be incomplete for a moment.

    `prefix` stands before the names of metrics; `attempt` is the number of the file among those of
    the job (see `Timeline`).
    """

    source = "event file"

    def __init__(self, prefix: str = "", attempt: int = 1) -> None:
        super().__init__()
        self.prefix = prefix
        self.attempt = attempt
        self.is_stuck = False  # the next length is wrong
        self._stuck_at = -1
        self.decoded = 0
        self._checksums: dict[int, int] = {}
        self._names: dict[bytes, str] = {}

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self.decoded >= MAX_BYTES

    def feed(self, data: bytes) -> list[Report]:
        reports: list[Report] = []
        buffer = self._tail + data
        start, size = 0, len(buffer)
        self.is_stuck, was_full = False, self.is_full
        while size - start >= _HEADER and not self.is_full:
            length, checksum = _LENGTH.unpack_from(buffer, start)
            if self._length_checksum(length) != checksum:
                self._get_stuck()
                break
            end = start + _HEADER + length + 4
            if length > MAX_RECORD_BYTES:
                self._lines += 1
                start = end  # perhaps behind the end of the buffer
                continue
            if end > size:
                break
            record = buffer[start + _HEADER : end - 4]
            self.decoded += len(record) + _HEADER + 4
            self._lines += 1
            if (
                length <= _MAX_CHECKED_BYTES
                and masked_crc(record) != _CHECKSUM.unpack_from(buffer, end - 4)[0]
            ):
                self._record_invalid(self._lines, "a wrong checksum")
            else:
                reports += self._read(record, self._lines)
            start = end
        if self.is_full and not was_full:
            self._record_invalid(self._lines, f"more than {MAX_BYTES >> 20} MiB of records")
        self.offset += start
        self._tail = b"" if self.is_stuck or self.is_full else buffer[start:]
        return reports

    def _length_checksum(self, length: int) -> int:
        """The checksum of a length; most records have one of a few lengths."""
        known = self._checksums.get(length)
        if known is None:
            known = masked_crc(length.to_bytes(8, "little"))
            if length <= _MAX_CHECKED_BYTES:
                self._checksums[length] = known
        return known

    def finish(self) -> list[Report]:
        self._tail = b""  # an incomplete record
        return []

    def _get_stuck(self) -> None:
        self.is_stuck = True
        if self._stuck_at != self._lines:
            self._stuck_at = self._lines
            self._record_invalid(self._lines + 1, "a wrong length; the rest is not read")

    def _read(self, line: bytes, number: int) -> list[Report]:
        try:
            return self._event(line)
        except (_Damaged, struct.error, OverflowError):
            self._record_invalid(number, "not an event")
            return []

    def _event(self, record: bytes) -> list[Report]:
        at, step = 0.0, 0
        summaries = []
        for field, value in _fields(record):
            if field == 1 and isinstance(value, bytes):
                at = _DOUBLE.unpack(value)[0]
            elif field == 2 and isinstance(value, int):
                step = _signed(value)
            elif field == 5 and isinstance(value, bytes):
                summaries.append(value)
        values: dict[str, object] = {}
        for summary in summaries:
            for field, value in _fields(summary):
                if field == 1 and isinstance(value, bytes):
                    self._add_value(value, values)
        if not values:
            return []
        time = at if math.isfinite(at) and at > 0 else None
        return [Report(step, values, time, self.attempt)]

    def _add_value(self, message: bytes, values: dict[str, object]) -> None:
        tag, number = b"", None
        for field, value in _fields(message):
            if not isinstance(value, bytes):
                continue
            if field == 1:
                tag = value
            elif field == 2:
                number = _shortest(value)
            elif field == 8:
                number = _scalar(value)
        if tag and number is not None:
            values[self._name(tag)] = number

    def _name(self, tag: bytes) -> str:
        known = self._names.get(tag)
        if known is None:
            known = metric_name(self.prefix, tag)
            if len(self._names) < 10_000:
                self._names[tag] = known
        return known

    def state(self) -> dict[str, object]:
        return {
            **super().state(),
            "prefix": self.prefix,
            "attempt": self.attempt,
            "decoded": self.decoded,
        }

    def restore(self, state: Mapping[str, object]) -> None:
        super().restore(state)
        self.prefix = str(state["prefix"])
        self.attempt = whole(state["attempt"])
        self.decoded = whole(state["decoded"])


def metric_name(prefix: str, tag: bytes) -> str:
    """The name of a metric for a tag; characters that names cannot have become `_`.

    >>> metric_name("", b"loss/train (ema)"), metric_name("validation", b"epoch_loss")
    ('loss/train__ema_', 'validation/epoch_loss')
    """
    text = tag.decode("utf-8", "replace")
    name = _NOT_IN_NAMES.sub("_", f"{prefix}/{text}" if prefix else text)
    return (f"{name}_" if name in RESERVED else name)[:_MAX_NAME]


def is_event_file(name: str) -> bool:
    """Whether TensorBoard would read a file of this name.

    >>> is_event_file("events.out.tfevents.1700000000.host.42.0"), is_event_file("notes.txt")
    (True, False)
    """
    return MARK in name


def by_age(path: str) -> tuple[float, str]:
    """A sort key for paths of event files: the time in the name, then the path."""
    match = re.search(r"tfevents\.(\d{1,19})", path)
    return (float(match[1]) if match else 0.0), path


def prefix_of(folder: str, folders: frozenset[str]) -> str:
    """What stands before the tags of the event files in a folder, relative to the output folder.

    `folders` are all folders with event files. A tag alone is the name of the metric, unless the
    folder lies below another folder with event files, or is named `train`, `validation`, ...

    >>> prefix_of("runs/a", frozenset({"runs/a"}))
    ''
    >>> prefix_of("logs/train", frozenset({"logs/train"}))
    'train'
    >>> prefix_of("loss_val", frozenset({"", "loss_val"}))
    'loss_val'
    """
    parts = folder.split("/") if folder else []
    for count in range(len(parts) - 1, -1, -1):
        if "/".join(parts[:count]) in folders:
            return "/".join(parts[count:])
    return parts[-1] if parts and parts[-1].lower() in _SPLITS else ""


# -- protocol buffers -----------------------------------------------------------------------------


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field: an int for a varint, else bytes. Raises _Damaged."""
    at, size = 0, len(message)
    while at < size:
        key = message[at]
        at += 1
        if key >= 0x80:
            key, at = _varint(message, at - 1)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _varint(message, at)
        elif kind == 1:
            length = 8
        elif kind == 5:
            length = 4
        else:
            raise _Damaged
        if length > size - at:
            raise _Damaged
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for at in range(at, min(at + 10, len(message))):  # noqa: B020
        byte = message[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    raise _Damaged


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _shortest(packed: bytes) -> float:
    """The value of a 32-bit float with as few digits as identify it: 0.1, not 0.10000000149."""
    value: float = _FLOAT.unpack(packed)[0]
    if not math.isfinite(value):
        return value
    short = float(f"{value:.7g}")
    if abs(short) < 3.4e38 and _FLOAT.pack(short) == packed:
        return short
    return float(f"{value:.9g}")


def _scalar(tensor: bytes) -> float | None:
    """The value of a tensor without dimensions; None for other tensors and for text."""
    kind, content, listed = 0, b"", None
    for field, value in _fields(tensor):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field == 2 and isinstance(value, bytes):
            if any(number == 2 for number, _ in _fields(value)):
                return None  # it has dimensions
        elif field == 4 and isinstance(value, bytes):
            content = value
        elif field in _VALUE_FIELDS and listed is None:
            listed = _first(value, _VALUE_FIELDS[field])
        elif field == 13 and listed is None:  # 16-bit floats, as the bits of an int
            bits = value if isinstance(value, int) else _varint(value, 0)[0]
            listed = _half(bits & 0xFFFF, kind)
    if kind not in _CONTENT and kind != _BFLOAT16:
        return None
    if content:
        if kind == _BFLOAT16:
            return _half(struct.unpack("<H", content)[0], kind)
        return _shortest(content) if kind == 1 else struct.unpack(_CONTENT[kind], content)[0]
    return 0.0 if listed is None else listed  # zero is not written


def _first(value: int | bytes, form: str) -> float:
    """The first of the values of a field, which may be packed."""
    if not form:
        return _signed(value if isinstance(value, int) else _varint(value, 0)[0])
    if isinstance(value, int):
        raise _Damaged
    size = struct.calcsize(form)
    return _shortest(value[:4]) if form == "<f" else struct.unpack(form, value[:size])[0]


def _half(bits: int, kind: int) -> float:
    if kind == _BFLOAT16:
        return float(_FLOAT.unpack(struct.pack("<I", bits << 16))[0])
    return float(struct.unpack("<e", struct.pack("<H", bits))[0])


# -- checksums ------------------------------------------------------------------------------------


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_TABLE: tuple[int, ...] = ()


def masked_crc(data: bytes) -> int:
    """CRC-32C of the data, masked as in TFRecords."""
    global _TABLE
    table = _TABLE = _TABLE or _crc_table()
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
