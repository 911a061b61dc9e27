"""Find the TensorBoard event files of a job, and read what is new in them.

Event files are searched in the output folder and up to three folders below it, but not in
`checkpoints` and `media`. A folder is read again only when its modification time has changed; of a
job without an output folder, nothing is read at all.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator

from stoker.client.output_walk import Walk, WalkLimits, open_inside
from stoker.features.results.reports.event_files import (
    MAX_BYTES,
    MAX_FILES,
    EventReader,
    by_age,
    is_event_file,
    prefix_of,
)
from stoker.record import Record
from stoker.text.progress.report_line import Report

_LIMITS = WalkLimits(max_entries=2000, max_depth=3, max_folders=100)
_SKIPPED = ("checkpoints", "media")
_PIECE = 1 << 20
_MAX_KNOWN = 512
_SETTLED_NS = 2_000_000_000  # another file may be added within the resolution of the clock


class _Known(Record):
    """The result of a search, valid while no folder changes."""

    folders: dict[str, int]
    files: tuple[str, ...]


_known: OrderedDict[str, _Known] = OrderedDict()
_lock = threading.Lock()


def event_files(folder: str) -> tuple[str, ...]:
    """The paths of event files below an output folder, oldest first."""
    try:
        os.lstat(folder)
    except OSError:
        return ()
    with _lock:
        known = _known.get(folder)
    if known is not None and _is_current(folder, known):
        return known.files
    walk = Walk(folder, _LIMITS, lambda path: path.rpartition("/")[2] not in _SKIPPED)
    files = [one.path for one in walk if is_event_file(one.path.rpartition("/")[2])]
    found = _Known(walk.folders, tuple(sorted(files, key=by_age)))
    with _lock:
        _known[folder] = found
        _known.move_to_end(folder)
        while len(_known) > _MAX_KNOWN:
            _known.popitem(last=False)
    return found.files


def _is_current(folder: str, known: _Known) -> bool:
    newest = time.time_ns() - _SETTLED_NS
    for name, at in known.folders.items():
        try:
            if os.lstat(os.path.join(folder, name)).st_mtime_ns != at or at > newest:
                return False
        except OSError:
            return False
    return bool(known.folders)


def new_reports(folder: str, readers: dict[str, EventReader]) -> Iterator[list[Report]]:
    """What was added to the event files of a job since the last call with these readers.

    Adds a reader to `readers` for each new file.
    """
    found = event_files(folder)
    folders = frozenset(path.rpartition("/")[0] for path in found)
    for path in found:
        if path not in readers and len(readers) < MAX_FILES:
            prefix = prefix_of(path.rpartition("/")[0], folders)
            readers[path] = EventReader(prefix, len(readers) + 1)
    decoded = sum(reader.decoded for reader in readers.values())
    for path, reader in readers.items():
        if path not in found or decoded >= MAX_BYTES:
            continue
        before = reader.decoded
        yield from _read(folder, path, reader)
        decoded += reader.decoded - before


def _read(folder: str, path: str, reader: EventReader) -> Iterator[list[Report]]:
    try:
        descriptor = open_inside(folder, path)
    except OSError:
        return
    try:
        while not reader.is_full:
            piece = os.pread(descriptor, _PIECE, reader.position)
            if not piece:
                return
            yield reader.feed(piece)
            if reader.is_stuck:
                return  # tried again by the next call
    except OSError:
        return  # a failing disk: the next call tries again
    finally:
        os.close(descriptor)
