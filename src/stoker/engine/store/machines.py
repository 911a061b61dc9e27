"""Hosts and versions on which attempts ran. Equal ones share one row."""

from __future__ import annotations

import zlib

from stoker.engine.store.database import Database
from stoker.record import Record


class Machine(Record):
    """Where an attempt ran."""

    host: str
    stoker: str  # version
    python: str  # version of the Python that runs Stoker
    driver: str  # version of the NVIDIA driver; empty: there is none
    gpus: str  # models of the GPUs of the attempt: 2 x NVIDIA H200


def machine_id(db: Database, machine: Machine) -> int:
    """Store a machine and return its id, which depends only on its values.

    So an id that was used before a transaction was rolled back never means another machine, unless
    two machines have the same checksums: the second then gets the next id.
    """
    text = "\0".join(machine).encode("utf-8", "surrogateescape")
    id = zlib.crc32(text) << 24 | zlib.adler32(text) & 0xFFFFFF
    while True:
        db.execute("INSERT OR IGNORE INTO machines VALUES (?, ?, ?, ?, ?, ?)", (id, *machine))
        if db.execute("SELECT * FROM machines WHERE id = ?", (id,)).fetchone() == (id, *machine):
            return id
        id += 1


def of_attempts(db: Database, job: int) -> dict[int, tuple[Machine, str | None]]:
    """Return the machine and the version of the job's Python, by number of attempt."""
    rows = db.execute(
        "SELECT a.number, a.python, m.host, m.stoker, m.python, m.driver, m.gpus"
        " FROM attempts a JOIN machines m ON m.id = a.machine WHERE a.job = ?",
        (job,),
    )
    return {number: (Machine(*values), python) for number, python, *values in rows}


def set_python(db: Database, attempt: int, version: str) -> None:
    """Record the version of the Python that an attempt runs."""
    db.execute("UPDATE attempts SET python = ? WHERE id = ?", (version, attempt))
