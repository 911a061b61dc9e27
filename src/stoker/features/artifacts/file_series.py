"""Group files that differ only in a step: `samples/10.png`, `samples/20.png`, ...

A series has at least two files in one folder with the same name but for the last number in it, and
the same suffix. `stoker.log_image` writes such files, and so do many training scripts. In `media`,
where `log_image` writes, a single image is a series too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from stoker.record import Record

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
