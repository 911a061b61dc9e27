"""Named devices: names given by a user that a queue uses instead of the GPUs of the host.

A name is any value for CUDA_VISIBLE_DEVICES, and each name is a slot for one job. Attempts refer to
slots by number, so the database keeps the names of all slots that ever existed, in order, and
separately the names in use.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from stoker.core.record import Record
from stoker.store.database import Database
from stoker.store.meta import set_meta

_KEY = "slots"


class Slots(Record):
    known: tuple[str, ...] = ()  # all names, by slot number
    used: tuple[str, ...] = ()  # names in use, in the order given by the user


def read(db: Database) -> Slots | None:
    """Return the named devices; None if the queue uses the GPUs of the host."""
    text = db.value("SELECT value FROM meta WHERE key = ?", (_KEY,))
    if text is None:
        return None
    known, used = json.loads(str(text))
    return Slots(tuple(known), tuple(used))


def use(db: Database, names: Iterable[str]) -> None:
    """Use only these names. Jobs that run on other ones may finish."""
    with db.transaction():
        _write(db, tuple(names))


def add(db: Database, name: str) -> None:
    """Add a slot with this name; several slots may have the same name."""
    with db.transaction():
        _write(db, (*(read(db) or Slots()).used, name))


def remove(db: Database, name: str) -> bool:
    """Remove a slot with this name; returns False if there is none."""
    with db.transaction():
        names = list((read(db) or Slots()).used)
        if name not in names:
            return False
        del names[len(names) - 1 - names[::-1].index(name)]
        _write(db, tuple(names))
        return True


def _write(db: Database, names: tuple[str, ...]) -> None:
    known = (read(db) or Slots()).known
    missing = Counter(names) - Counter(known)
    new = []
    for name in names:
        if missing[name]:
            missing[name] -= 1
            new.append(name)
    set_meta(db, _KEY, json.dumps([[*known, *new], names]))
