"""The files that a job left in its output folder: list them, and open one.

All attempts of a job, and all jobs of a trial, have the same folder. The files of jobs on a backend
are in the folder that their nodes see, or were copied there.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Iterable
from urllib.parse import quote, unquote_to_bytes

from stoker.client.output_walk import FoundFile, Walk, WalkLimits, open_inside
from stoker.client.views.job import output_folder
from stoker.engine.store.job_queries import JobRow
from stoker.errors import NotFound
from stoker.features.artifacts.file_kinds import IMAGE, kind_by_name
from stoker.record import Record
from stoker.settings import Settings
from stoker.text.sizes import format_size

LIMITS = WalkLimits(max_entries=5000, max_depth=8, max_folders=500)
_MAX_WORDS = 3


class Artifacts(Record):
    """The files of a job, newest walk."""

    folder: str
    files: tuple[FoundFile, ...]
    series: tuple[Series, ...]  # of images
    is_cut: bool  # there are more files than are listed
    skipped: int  # links, FIFOs, sockets and devices


def list_artifacts(settings: Settings, row: JobRow) -> Artifacts:
    """The files of a job, by path; at most `LIMITS.max_entries`."""
    folder = output_folder(settings, row)
    walk = Walk(folder, LIMITS)
    files = sorted(walk, key=lambda one: one.path)
    images = (one.path for one in files if kind_by_name(one.path) == IMAGE)
    return Artifacts(
        folder=folder,
        files=tuple(files),
        series=tuple(file_series(images)),
        is_cut=walk.is_cut,
        skipped=walk.skipped,
    )


def open_artifact(settings: Settings, row: JobRow, key: str) -> tuple[int, str]:
    """(descriptor, path) of a file, by the key that a list has for it. Raises NotFound."""
    path = os.fsdecode(unquote_to_bytes(key))
    try:
        return open_inside(output_folder(settings, row), path), path
    except OSError as error:
        missing = error.errno in (None, errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
        why = "" if missing else f": {error.strerror}"
    except ValueError:  # a NUL
        why = ""
    raise NotFound(
        f"job {row.id} has no file `{path[:200]}`{why}",
        "links and special files are not shown; the list of its files is at /api/jobs/ID/files",
    )


def key_of(path: str) -> str:
    """A path as ASCII text for an address; names need not be valid UTF-8."""
    return quote(os.fsencode(path), safe="/")


def files_in_words(settings: Settings, row: JobRow) -> str:
    """What a job left in its output folder, in one line."""
    return artifact_words(list_artifacts(settings, row))


def artifact_words(found: Artifacts) -> str:
    """The files of a job in one line: `12 files, 3.4 MiB: samples (10 images), checkpoints/...`."""
    if not found.files:
        return ""
    count, total = len(found.files), sum(one.size for one in found.files)
    more = "more than " if found.is_cut else ""
    words = f"{more}{count} file{'' if count == 1 else 's'}, {format_size(total)}"
    in_series = {path for one in found.series for _, path in one.steps}
    parts = [f"{one.name} ({len(one.steps)} images)" for one in found.series]
    rest = [one for one in found.files if one.path not in in_series]
    rest.sort(key=lambda one: -one.size)
    parts += [f"{one.path} ({format_size(one.size)})" for one in rest]
    shown = parts[:_MAX_WORDS] + (["..."] if len(parts) > _MAX_WORDS else [])
    return f"{words}: {', '.join(shown)}"


def kinds(found: Artifacts) -> dict[str, int]:
    """How many files there are of each kind."""
    return dict(Counter(kind_by_name(one.path) for one in found.files))


_LAST_NUMBER = re.compile(r"^(.*?)(\d{1,15})(\D*)$", re.DOTALL)
_MEDIA = "media/"


class Series(Record):
    name: str
    steps: tuple[tuple[int, str], ...]  # (step, path), by step


def file_series(paths: Iterable[str]) -> list[Series]:
    """The series among files of one kind, by name.

    >>> file_series(["media/x/10.png", "media/x/9.png", "y/1.png"])
    [Series(name='x', steps=((9, 'media/x/9.png'), (10, 'media/x/10.png')))]
    """
    groups: dict[tuple[str, str, str], dict[int, str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        found = _LAST_NUMBER.match(name)
        if found is not None:
            groups.setdefault((folder, found[1], found[3]), {})[int(found[2])] = path
    made = [
        Series(_name(folder, before, after), tuple(sorted(steps.items())))
        for (folder, before, after), steps in groups.items()
        if len(steps) > 1 or (folder.startswith(_MEDIA) and not before)
    ]
    return sorted(made, key=lambda one: one.name)


def _name(folder: str, before: str, after: str) -> str:
    if folder.startswith(_MEDIA) and not before:
        return folder[len(_MEDIA) :]
    return f"{folder}/{before}*{after}" if folder else f"{before}*{after}"
