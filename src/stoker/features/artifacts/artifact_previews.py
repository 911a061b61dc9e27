"""Previews of files that jobs left: text, tables, images and sounds, all of them untrusted.

A preview never contains active content: HTML and SVG are text. The amount of data that is read and
returned is limited, and Parquet files are decoded in a process with limits of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

from stoker.features.artifacts.file_kinds import (
    AUDIO,
    HEAD_BYTES,
    IMAGE,
    MAX_IMAGE_BYTES,
    TABLE,
    TEXT,
    audio_type,
    image_format,
    is_text,
)
from stoker.record import Record
from stoker.text.sizes import format_size

NONE = "none"
MAX_ROWS = 200
MAX_COLUMNS = 60
MAX_CELL = 200  # characters
_TEXT_BYTES = 64 << 10
_TABLE_BYTES = 512 << 10
_MAX_AUDIO_BYTES = 256 << 20
_PARQUET_SECONDS = 20.0
_MAX_ANSWER = 4 << 20
_SEPARATORS = {"csv": ",", "tsv": "\t"}
_parquet_lock = threading.Lock()  # one process at a time


class Preview(Record):
    """`kind` is image, audio, table, text or none; `note` says why something is not shown."""

    kind: str
    note: str | None = None
    text: str | None = None
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    content_type: str | None = None  # of an image or a sound
    width: int | None = None
    height: int | None = None


def preview(descriptor: int, path: str) -> Preview:
    """What to show of an open file; its content decides, and its name only between text formats."""
    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, HEAD_BYTES, 0)
    media = media_preview(head, size)
    if media is not None:
        return media
    if head[:4] == b"PAR1":
        return _parquet(descriptor)
    if not is_text(head):
        return Preview(NONE, note="a binary file; download it to open it")
    suffix = path.rpartition(".")[2].lower()
    if suffix in _SEPARATORS:
        table = _table(os.pread(descriptor, _TABLE_BYTES, 0), size, _SEPARATORS[suffix])
        if table is not None:
            return table
    return _text(head[:_TEXT_BYTES], size, is_json=suffix == "json")


def media_preview(head: bytes, size: int) -> Preview | None:
    """An image or a sound, or why it is not shown; None for other files."""
    image = image_format(head)
    if image is not None:
        problem = image.problem
        if size > MAX_IMAGE_BYTES:
            problem = f"the image has {format_size(size)}, which is too large to show"
        if problem is not None:
            return Preview(NONE, note=problem)
        return Preview(
            IMAGE, content_type=image.content_type, width=image.width, height=image.height
        )
    audio = audio_type(head)
    if audio is None:
        return None
    if size > _MAX_AUDIO_BYTES:
        return Preview(NONE, note=f"the sound has {format_size(size)}, which is too large to play")
    return Preview(AUDIO, content_type=audio)


def _text(head: bytes, size: int, *, is_json: bool) -> Preview:
    note = None
    if size > len(head):
        note = f"the first {format_size(len(head))} of {format_size(size)}"
    elif is_json:
        try:
            return Preview(TEXT, text=json.dumps(json.loads(head), indent=2, ensure_ascii=False))
        except (ValueError, RecursionError):
            pass  # shown as it is
    return Preview(TEXT, note=note, text=head.decode("utf-8", "replace"))


def _table(data: bytes, size: int, separator: str) -> Preview | None:
    """The first rows of a CSV or TSV file; None if it has no such form."""
    import csv

    text = data.decode("utf-8", "replace")
    if size > len(data):
        text = text[: text.rfind("\n") + 1]
    lines = csv.reader(text.splitlines(keepends=True), delimiter=separator)
    try:
        rows = [row for row, _ in zip(lines, range(MAX_ROWS + 2), strict=False) if row]
    except csv.Error:
        return None
    if not rows:
        return None
    is_cut = len(rows) > MAX_ROWS + 1 or size > len(data)
    return _limited(rows[0], iter(rows[1 : MAX_ROWS + 1]), is_cut)


def _limited(header: list[str], rows: Iterator[list[str]], is_cut: bool) -> Preview:
    shown = tuple(tuple(_cell(cell) for cell in row[:MAX_COLUMNS]) for row in rows)
    notes = [f"the first {len(shown)} rows"] if is_cut else []
    if len(header) > MAX_COLUMNS:
        notes.append(f"the first {MAX_COLUMNS} of {len(header)} columns")
    columns = tuple(_cell(name) for name in header[:MAX_COLUMNS])
    return Preview(TABLE, note=", ".join(notes) or None, columns=columns, rows=shown)


def _cell(text: str) -> str:
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


def _parquet(descriptor: int) -> Preview:
    command = [
        sys.executable,
        "-m",
        "stoker.features.results.parquet_rows",
        str(MAX_ROWS),
        str(MAX_COLUMNS),
    ]
    with _parquet_lock:
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)
            done = subprocess.run(
                command,
                stdin=descriptor,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_PARQUET_SECONDS,
                check=False,
            )
        except (subprocess.TimeoutExpired, OSError):
            return Preview(NONE, note="the table takes too long to read")
    try:
        found = json.loads(done.stdout[:_MAX_ANSWER])
    except ValueError:
        return Preview(NONE, note="the table is damaged, or too large to read")
    if "problem" in found:
        return Preview(NONE, note=str(found["problem"]))
    shown = _limited(found["columns"], iter(found["rows"]), found["total"] > len(found["rows"]))
    return shown._replace(
        note=f"{len(found['rows'])} of {found['total']} rows"
        if found["total"] > len(found["rows"])
        else shown.note
    )
