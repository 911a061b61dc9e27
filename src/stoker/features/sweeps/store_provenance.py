"""The code and the machines of the trials of a sweep, each with the number of trials."""

from __future__ import annotations

from stoker.engine.store.database import Database
from stoker.engine.store.machines import Machine
from stoker.features.code.store import NewCode, StoredCode, code_key, diff_of, load, of_job
from stoker.record import Record


class TrialCodes(Record):
    """Which code the trials of a sweep ran with, as it was when they were submitted."""

    labels: dict[int, str]  # by trial; empty if all ran with the same code
    others: list[int]  # trials that ran with other code than the next one, or the newest one


def trial_codes(
    db: Database, sweep: int, code: NewCode | None = None, snapshot: str | None = None
) -> TrialCodes:
    """Compare the code of trials. `code` and `snapshot` are those of a trial that would be next.

    Trials whose code is not known, because their jobs were removed or git failed, do not count.
    """
    keys: dict[tuple[int | None, str | None], tuple[str, str]] = {}
    found: list[tuple[int, str, str]] = []
    for number, *recorded in db.execute(
        "SELECT t.number, j.code, j.snapshot FROM trials t JOIN jobs j ON j.id = t.job"
        " WHERE t.sweep = ? AND (j.code IS NOT NULL OR j.snapshot IS NOT NULL) ORDER BY j.id",
        (sweep,),
    ).fetchall():
        pair = recorded[0], recorded[1]
        if pair not in keys:
            keys[pair] = _key(db, *pair)
        if keys[pair][0]:
            found.append((number, *keys[pair]))
    newest = snapshot or (code_key(code)[0] if code is not None else "")
    newest = newest or (found[-1][1] if found else "")
    others = sorted(number for number, key, _ in found if key != newest)
    is_mixed = len({key for _, key, _ in found}) > 1
    return TrialCodes({number: label for number, _, label in found} if is_mixed else {}, others)


def _key(db: Database, code: int | None, snapshot: str | None) -> tuple[str, str]:
    """What is equal for equal code, and a label for it."""
    if snapshot is not None:
        return snapshot, snapshot[:12]
    stored = None if code is None else load(db, code)
    return ("", "") if stored is None else code_key(stored, diff_of(db, stored.id))


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
