"""Read pages and records of an SQLite file that SQLite itself refuses to open.

The format is described at https://sqlite.org/fileformat2.html. Every page, cell and frame is read
independently: unreadable ones are counted and skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

TABLE_LEAF, TABLE_INTERIOR = 0x0D, 0x05
INDEX_LEAF, INDEX_INTERIOR = 0x0A, 0x02
_KINDS = (TABLE_LEAF, TABLE_INTERIOR, INDEX_LEAF, INDEX_INTERIOR)
_MAGIC = b"SQLite format 3\0"
_SIZES = (2048, 4096, 1024, 8192, 512, 16384, 32768, 65536)  # the page size of Stoker first
_WAL_HEADER, _FRAME_HEADER = 32, 24
_PLAIN_SIZES = (0, 1, 2, 3, 4, 6, 8)  # bytes of integers, by serial type

Value = int | float | str | bytes | None


class Unreadable(Exception):
    """The page, cell or record is damaged."""


class Pages:
    """The newest version of each page, from the write-ahead log or else from the file."""

    def __init__(self, data: bytes, log: bytes = b"") -> None:
        self._data = data
        self.has_header = data[:16] == _MAGIC and _page_size(data) is not None
        self.size = (_page_size(data) if self.has_header else None) or self._guess_size(log)
        frames, self.log_is_whole = _frames(log, self.size)
        self._newest: dict[int, tuple[int, int]] = frames  # by page: position in the log
        self._log = log
        in_file = (len(data) + self.size - 1) // self.size
        self.count = max([in_file, *frames])

    def _guess_size(self, log: bytes) -> int:
        """Return the page size with which most of the file consists of sound b-tree pages."""
        reported = int.from_bytes(log[8:12], "big")
        if reported in _SIZES:
            return reported
        return max(_SIZES, key=lambda size: (self._sound_bytes(size), size == _SIZES[0]))

    def _sound_bytes(self, size: int) -> int:
        starts = range(size, len(self._data) - size + 1, size)  # page 1 begins with the header
        return size * sum(_is_sound(self._data[at : at + size]) for at in starts)

    def page(self, number: int) -> bytes:
        """Return one page. Raises Unreadable if it is missing or incomplete."""
        place = self._newest.get(number)
        if place is not None:
            return self._log[place[0] : place[1]]
        page = self._data[(number - 1) * self.size : number * self.size]
        if number < 1 or len(page) < self.size:
            raise Unreadable(f"page {number} is not in the file")
        return page

    def header(self) -> bytes:
        """Return the 100 bytes at the start of page 1; empty if they are not a header."""
        try:
            header = self.page(1)[:100]
        except Unreadable:
            return b""
        return header if header[:16] == _MAGIC else b""

    def free(self) -> set[int]:
        """Return the unused pages; the rows on them were deleted."""
        found: set[int] = set()
        trunk = int.from_bytes(self.header()[32:36], "big")
        while trunk and trunk not in found and trunk <= self.count:
            found.add(trunk)
            try:
                page = self.page(trunk)
            except Unreadable:
                break
            leaves = min(int.from_bytes(page[4:8], "big"), self.size // 4 - 2)
            for place in range(8, 8 + 4 * leaves, 4):
                found.add(int.from_bytes(page[place : place + 4], "big"))
            trunk = int.from_bytes(page[:4], "big")
        return found

    # -- b-trees -------------------------------------------------------------------------------

    def kind(self, number: int) -> int:
        """Return the kind of b-tree page; 0 if it is not one or not readable."""
        try:
            kind = self.page(number)[100 if number == 1 else 0]
        except Unreadable:
            return 0
        return kind if kind in _KINDS else 0

    def children(self, number: int) -> list[int]:
        """Return the child pages of an interior page, in order."""
        page, start = self.page(number), 100 if number == 1 else 0
        pages = []
        for place in _cell_places(page, start, 12):
            pages.append(int.from_bytes(page[place : place + 4], "big"))
        pages.append(int.from_bytes(page[start + 8 : start + 12], "big"))
        return pages

    def rows(self, number: int) -> tuple[list[tuple[int, list[Value]]], int]:
        """Return row id and values of each cell on a table leaf, and the number of bad cells."""
        page, start = self.page(number), 100 if number == 1 else 0
        rows, bad = [], 0
        for place in _cell_places(page, start, 8):
            try:
                length, at = _varint(page, place)
                rowid, at = _varint(page, at)
                rows.append((_signed(rowid), _record(self._payload(page, at, length, True))))
            except (Unreadable, IndexError, UnicodeDecodeError):
                bad += 1
        return rows, bad

    def entries(self, number: int) -> tuple[list[list[Value]], int]:
        """Return the records on an index page and the number of unreadable ones.

        Tables WITHOUT ROWID have such pages too.
        """
        page, start = self.page(number), 100 if number == 1 else 0
        is_leaf = page[start] == INDEX_LEAF
        records, bad = [], 0
        for place in _cell_places(page, start, 8 if is_leaf else 12):
            try:
                length, at = _varint(page, place if is_leaf else place + 4)
                records.append(_record(self._payload(page, at, length, False)))
            except (Unreadable, IndexError, UnicodeDecodeError):
                bad += 1
        return records, bad

    def _payload(self, page: bytes, at: int, length: int, is_table: bool) -> bytes:
        """Return the bytes of a cell, including those on overflow pages."""
        usable = self.size
        most = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
        least = (usable - 12) * 32 // 255 - 23
        local = length
        if length > most:
            local = least + (length - least) % (usable - 4)
            if local > most:
                local = least
        if length > self.count * usable or at + local > usable:
            raise Unreadable("a cell does not fit on its page")
        payload = page[at : at + local]
        following = (
            int.from_bytes(page[at + local : at + local + 4], "big") if length > local else 0
        )
        while len(payload) < length:
            overflow = self.page(following)
            following = int.from_bytes(overflow[:4], "big")
            payload += overflow[4 : 4 + length - len(payload)]
        return payload


def _page_size(data: bytes) -> int | None:
    size = int.from_bytes(data[16:18], "big")
    size = 65536 if size == 1 else size
    return size if size in _SIZES else None


def _is_sound(page: bytes) -> bool:
    """Whether the bytes are a b-tree page: its cells are inside and fill it from the end."""
    if page[0] not in _KINDS:
        return False
    header = 12 if page[0] in (TABLE_INTERIOR, INDEX_INTERIOR) else 8
    count = int.from_bytes(page[3:5], "big")
    first = header + 2 * count
    if not count or first > len(page):
        return False
    places = [int.from_bytes(page[at : at + 2], "big") for at in range(header, first, 2)]
    return first <= min(places) and len(page) // 2 <= max(places) < len(page)


def _cell_places(page: bytes, start: int, header: int) -> Iterator[int]:
    count = int.from_bytes(page[start + 3 : start + 5], "big")
    first = start + header
    if first + 2 * count > len(page):
        raise Unreadable("the cells of a page do not fit on it")
    for at in range(first, first + 2 * count, 2):
        place = int.from_bytes(page[at : at + 2], "big")
        if place < first + 2 * count or place >= len(page):
            continue
        yield place


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(at, at + 8):
        byte = data[place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    return value << 8 | data[at + 8], at + 9


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _record(payload: bytes) -> list[Value]:
    end, at = _varint(payload, 0)
    if not at <= end <= len(payload):
        raise Unreadable("a record's header is longer than the record")
    values: list[Value] = []
    place = end
    while at < end:
        kind, at = _varint(payload, at)
        value, place = _value(payload, place, kind)
        values.append(value)
    if at != end or place != len(payload):
        raise Unreadable("a record does not end where it should")
    return values


def _value(payload: bytes, at: int, kind: int) -> tuple[Value, int]:
    import struct

    if kind == 0:
        return None, at
    if kind <= 6:
        end = at + _PLAIN_SIZES[kind]
        value: Value = int.from_bytes(payload[at:end], "big", signed=True)
    elif kind == 7:
        end = at + 8
        value = struct.unpack(">d", payload[at:end])[0] if end <= len(payload) else None
    elif kind in (8, 9):
        return kind - 8, at
    elif kind >= 12:
        end = at + (kind - 12) // 2
        value = payload[at:end] if kind % 2 == 0 else payload[at:end].decode("utf-8")
    else:
        raise Unreadable(f"a value of the unknown kind {kind}")
    if end > len(payload):
        raise Unreadable("a value is longer than its record")
    return value, end


# -- the write-ahead log -------------------------------------------------------------------------


def _frames(log: bytes, size: int) -> tuple[dict[int, tuple[int, int]], bool]:
    """Return the log position of the newest commit of each page, and whether all was readable.

    SQLite stops at the first frame with a wrong checksum and loses all later commits. The checksum
    of a frame continues that of the frame before, which is stored in that frame. So each frame can
    be checked on its own, and only damaged frames are lost.
    """
    if len(log) < _WAL_HEADER + _FRAME_HEADER:
        return {}, True
    before = (int.from_bytes(log[24:28], "big"), int.from_bytes(log[28:32], "big"))
    order = "big" if log[3] & 1 else "little"
    if _checksum(log[:24], (0, 0), order) == before:
        return _frames_of(log, size, order, log[16:24])
    # The header is damaged: every frame has the salts, and both byte orders can be tried.
    salts = log[_WAL_HEADER + 8 : _WAL_HEADER + 16]
    tries = [_frames_of(log, size, order, salts)[0] for order in ("big", "little")]
    return max(tries, key=len), False


def _frames_of(
    log: bytes, size: int, order: str, salts: bytes
) -> tuple[dict[int, tuple[int, int]], bool]:
    newest: dict[int, tuple[int, int]] = {}
    pending: dict[int, tuple[int, int]] = {}
    is_whole = True
    before = (int.from_bytes(log[24:28], "big"), int.from_bytes(log[28:32], "big"))
    step = _FRAME_HEADER + size
    for at in range(_WAL_HEADER, len(log) - step + 1, step):
        head, end = log[at : at + _FRAME_HEADER], at + step
        if head[8:16] != salts:
            # A frame from before the last reset of the log ends it, unless this frame is damaged.
            if log[end + 8 : end + 16] != salts:
                break
            is_whole = False
            before = (int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big"))
            continue
        reported = (int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big"))
        summed = _checksum(log[at + _FRAME_HEADER : end], _checksum(head[:8], before, order), order)
        before = reported
        if summed != reported:
            is_whole = False
            continue
        pending[int.from_bytes(head[:4], "big")] = (at + _FRAME_HEADER, end)
        if int.from_bytes(head[4:8], "big"):  # the last frame of a transaction
            newest.update(pending)
            pending.clear()
    # An incomplete end is left by a crash inside a transaction, or by a truncation of the file.
    is_torn = bool(pending) or (len(log) - _WAL_HEADER) % step != 0
    return newest, is_whole and not is_torn


def _checksum(data: bytes, start: tuple[int, int], order: str) -> tuple[int, int]:
    import struct

    first, second = start
    words = struct.unpack(f"{'>' if order == 'big' else '<'}{len(data) // 4}I", data)
    for at in range(0, len(words), 2):
        first = first + words[at] + second & 0xFFFFFFFF
        second = second + words[at + 1] + first & 0xFFFFFFFF
    return first, second
