"""Named devices: names given by a user that a queue uses instead of the GPUs of the host.

A name is any value for CUDA_VISIBLE_DEVICES, and each name is a slot for one job. Attempts refer to
slots by number, so the database keeps the names of all slots that ever existed, in order, and
separately the names in use.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from stoker.engine.store.database import Database
from stoker.engine.store.meta import set_meta
from stoker.record import Record

_KEY = "slots"


class NamedDevices(Record):
    all_names: tuple[str, ...] = ()  # all names, by slot number
    names_in_use: tuple[str, ...] = ()  # names in use, in the order given by the user


def read(db: Database) -> NamedDevices | None:
    """Return the named devices; None if the queue uses the GPUs of the host."""
    text = db.value("SELECT value FROM meta WHERE key = ?", (_KEY,))
    if text is None:
        return None
    all_names, names_in_use = json.loads(str(text))
    return NamedDevices(tuple(all_names), tuple(names_in_use))


def use(db: Database, names: Iterable[str]) -> None:
    """Use only these names. Jobs that run on other ones may finish."""
    with db.transaction():
        _write(db, tuple(names))


def add(db: Database, name: str) -> None:
    """Add a slot with this name; several slots may have the same name."""
    with db.transaction():
        _write(db, (*(read(db) or NamedDevices()).names_in_use, name))


def remove(db: Database, name: str) -> bool:
    """Remove a slot with this name; returns False if there is none."""
    with db.transaction():
        names = list((read(db) or NamedDevices()).names_in_use)
        if name not in names:
            return False
        del names[len(names) - 1 - names[::-1].index(name)]
        _write(db, tuple(names))
        return True


def _write(db: Database, names: tuple[str, ...]) -> None:
    all_names = (read(db) or NamedDevices()).all_names
    missing = Counter(names) - Counter(all_names)
    new = []
    for name in names:
        if missing[name]:
            missing[name] -= 1
            new.append(name)
    set_meta(db, _KEY, json.dumps([[*all_names, *new], names]))
