"""Devices of a queue's own: names that somebody gave it, in place of the cards of the host.

A name is what goes into CUDA_VISIBLE_DEVICES, whatever it says; one name is room for one job. Jobs
are on record by a slot's number, so the books keep every slot that ever was, in that order, beside
the names that are in use.
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
    known: tuple[str, ...] = ()  # by number
    used: tuple[str, ...] = ()  # in the order in which they were given


def read(db: Database) -> Slots | None:
    """None: this queue uses the cards of the host."""
    text = db.value("SELECT value FROM meta WHERE key = ?", (_KEY,))
    if text is None:
        return None
    known, used = json.loads(str(text))
    return Slots(tuple(known), tuple(used))


def use(db: Database, names: Iterable[str]) -> None:
    """These and no others; what runs elsewhere may finish."""
    with db.transaction():
        _write(db, tuple(names))


def add(db: Database, name: str) -> None:
    """One more; a name that is there already gets a second slot."""
    with db.transaction():
        _write(db, (*(read(db) or Slots()).used, name))


def remove(db: Database, name: str) -> bool:
    """One less of that name; False when there is none."""
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
