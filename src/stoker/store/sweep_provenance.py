"""The code and the machines of the trials of a sweep, each with the number of trials."""

from __future__ import annotations

from stoker.store.code_states import StoredCode, of_job
from stoker.store.database import Database
from stoker.store.machines import Machine


def codes(db: Database, sweep: int) -> list[tuple[StoredCode, str | None, int]]:
    """The states of the code at submit, with snapshot and number of trials, the most first."""
    rows = db.execute(
        "SELECT max(j.id), j.snapshot, count(*) FROM trials t JOIN jobs j ON j.id = t.job"
        " WHERE t.sweep = ? AND j.code IS NOT NULL GROUP BY j.code, j.snapshot ORDER BY 3 DESC, 1",
        (sweep,),
    ).fetchall()
    found = [(of_job(db, job), snapshot, count) for job, snapshot, count in rows]
    return [(code, snapshot, count) for code, snapshot, count in found if code is not None]


def machines(db: Database, sweep: int) -> list[tuple[Machine, str | None, int]]:
    """Where the newest attempts ran, with the Python of the jobs and the number of trials."""
    rows = db.execute(
        "SELECT m.host, m.stoker, m.python, m.driver, m.gpus, a.python, count(*) FROM trials t"
        " JOIN jobs j ON j.id = t.job JOIN attempts a ON a.id = j.attempt"
        " JOIN machines m ON m.id = a.machine WHERE t.sweep = ?"
        " GROUP BY m.id, a.python ORDER BY 7 DESC, 1",
        (sweep,),
    )
    return [(Machine(*row[:5]), row[5], row[6]) for row in rows]
