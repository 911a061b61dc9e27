"""Sweeps and their trials.

A trial stays in the database when its job is removed, and it may have had several jobs. So to run a
sweep again means to start the trials without a job that is done, waiting or running.
"""

from __future__ import annotations

from collections.abc import Iterable

from stoker.engine.model import SWEEP_PREFIX
from stoker.engine.outcome.log_tail import masked
from stoker.engine.outcome.retry import Verdict, without_retry
from stoker.engine.store.database import Database, id_list
from stoker.engine.store.dependencies import release_dependents
from stoker.engine.store.interrupted_jobs import interrupted
from stoker.engine.store.output_columns import expand_output, output_dir_in
from stoker.errors import NotFound
from stoker.features.notes import store as notes
from stoker.record import Record
from stoker.states import ACTIVE, WAITING
from stoker.text.byte_text import maybe_text, to_bytes, to_text, unpack_pairs
from stoker.text.suggestions import nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.engine.store.attempts import JobToJudge

# The part of an error that is compared with the next failure; longer texts differ by chance.
_EVIDENCE_CHARS = 120
_UNFINISHED = ", ".join(f"'{state}'" for state in (*WAITING, *ACTIVE))
_PAUSED = "sweep_paused."  # with the number of a sweep: a key of `meta`


TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.engine.store.job_queries import JobRow


class SweepRow(Record):
    id: int
    name: str
    key: str
    spec: str
    base: str
    context: int
    created_at: float
    is_driven: int
    stopped: str | None
    max_parallel: int | None
    max_fails: int | None
    same_fails: int | None
    failed: int


class TrialRow(Record):
    """A trial with its newest job; fields of the job are None if it has none."""

    number: int
    identity: str
    point: str
    job: int | None
    reported: int
    reports: str | None
    state: str | None
    cause: str | None
    attempts: int | None
    started_at: float | None
    ended_at: float | None
    stdout: str | None
    detail: str | None
    files_dir: str | None  # the folder of the job's files; None: the state folder
    output_dir: str | None  # its $STOKER_OUTPUT_DIR
    status: int | None


def sweep_group(name: str) -> str:
    """Return the fair-share group of a sweep's jobs."""
    return f"{SWEEP_PREFIX}{name}"


def save(db: Database, name: str, now: float, columns: dict[str, object]) -> int:
    """Insert a sweep, or update the one with this name; its trials stay. Returns its id."""
    known = db.value("SELECT id FROM sweeps WHERE name = ?", (to_bytes(name),))
    if known is not None:
        marks = ", ".join(f"{column} = ?" for column in columns)
        db.execute(f"UPDATE sweeps SET {marks} WHERE id = ?", (*columns.values(), known))
        return int(str(known))
    columns = {"name": to_bytes(name), "created_at": now, **columns}
    marks = ", ".join("?" * len(columns))
    cursor = db.execute(
        f"INSERT INTO sweeps ({', '.join(columns)}) VALUES ({marks})", tuple(columns.values())
    )
    return int(cursor.lastrowid or 0)


_COLUMNS = ", ".join(SweepRow._fields)


def by_name(db: Database, name: str) -> SweepRow | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM sweeps WHERE name = ?", (to_bytes(name),)).fetchone()
    return None if row is None else _sweep(row)


def by_key(db: Database, key: str) -> SweepRow | None:
    """Return the newest sweep with this template and folder; None if there is none."""
    row = db.execute(
        f"SELECT {_COLUMNS} FROM sweeps WHERE key = ? ORDER BY id DESC LIMIT 1", (key,)
    ).fetchone()
    return None if row is None else _sweep(row)


def has_driven(db: Database) -> bool:
    """Whether any sweep needs the sweep driver."""
    return bool(db.value("SELECT 1 FROM sweeps WHERE is_driven = 1 AND stopped IS NULL LIMIT 1"))


def set_driven(db: Database, sweep: int) -> None:
    db.execute("UPDATE sweeps SET is_driven = 1 WHERE id = ?", (sweep,))


def end_driving(db: Database, sweep: int, spec: str) -> None:
    """Mark a sweep as not needing the driver, unless it has active jobs or a new spec."""
    db.execute(
        "UPDATE sweeps SET is_driven = 0 WHERE id = ? AND spec = ? AND NOT EXISTS (SELECT 1"
        f" FROM jobs WHERE sweep = sweeps.id AND state IN ({_UNFINISHED}))",
        (sweep, spec),
    )


def note_pause(db: Database, sweep: int, why: str | None) -> None:
    """Record why the search of a sweep is paused; None: it is not."""
    key = f"{_PAUSED}{sweep}"
    if why is None:
        db.execute("DELETE FROM meta WHERE key = ?", (key,))
    else:
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, why))


def pause(db: Database, sweep: int) -> str | None:
    why = db.value("SELECT value FROM meta WHERE key = ?", (f"{_PAUSED}{sweep}",))
    return None if why is None else str(why)


def of_jobs(db: Database, jobs: Iterable[int]) -> set[int]:
    """The sweeps whose newest trials these jobs ran."""
    rows = db.execute(
        "SELECT DISTINCT sweep FROM trials WHERE job IN (SELECT value FROM json_each(?))",
        (id_list(jobs),),
    )
    return {int(row[0]) for row in rows}


def current(db: Database, sweep: int, number: int) -> tuple[int | None, str | None]:
    """(newest job, its state) of a trial, as of now."""
    row = db.execute(
        "SELECT t.job, coalesce(j.state, t.state) FROM trials t LEFT JOIN jobs j ON j.id = t.job"
        " WHERE t.sweep = ? AND t.number = ?",
        (sweep, number),
    ).fetchone()
    if row is None:
        return None, None
    return row[0], interrupted(db).get(row[0], (row[1], row[1]))[1]


def driven(db: Database) -> list[SweepRow]:
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM sweeps WHERE is_driven = 1 AND stopped IS NULL ORDER BY id"
    )
    return [_sweep(row) for row in rows]


def get(db: Database, name: str) -> SweepRow:
    found = by_name(db, name)
    if found is None:
        raise NotFound(f"there is no sweep `{name}`", near_name(db, name))
    return found


def near_name(db: Database, name: str) -> str:
    """Return a hint for an unknown name."""
    known = [to_text(row[0]) for row in db.execute("SELECT name FROM sweeps")]
    near = nearest(name, known)
    return f"did you mean `{near}`?" if near else "`stoker sweep ls` shows the sweeps"


def all_sweeps(db: Database) -> list[SweepRow]:
    return [_sweep(row) for row in db.execute(f"SELECT {_COLUMNS} FROM sweeps ORDER BY id")]


def _sweep(row: tuple[object, ...]) -> SweepRow:
    return SweepRow(row[0], to_text(row[1]), *row[2:])  # type: ignore[arg-type]


def identities(db: Database, sweep: int) -> set[str]:
    return {row[0] for row in db.execute("SELECT identity FROM trials WHERE sweep = ?", (sweep,))}


def among(db: Database, sweep: int, wanted: Iterable[str]) -> set[str]:
    """Return the identities out of `wanted` that the sweep has."""
    found = set()
    for key in wanted:
        if db.value("SELECT 1 FROM trials WHERE sweep = ? AND identity = ?", (sweep, key)):
            found.add(key)
    return found


def add_trials(db: Database, sweep: int, trials: Iterable[tuple[str, str]]) -> int:
    """Add new trials as (identity, point); returns the number of the first."""
    first = 1 + int(
        str(db.value("SELECT coalesce(max(number), 0) FROM trials WHERE sweep = ?", (sweep,)))
    )
    db.executemany(
        "INSERT INTO trials (sweep, number, identity, point) VALUES (?, ?, ?, ?)",
        [(sweep, first + place, *trial) for place, trial in enumerate(trials)],
    )
    return first


def attach(db: Database, sweep: int, jobs: Iterable[tuple[int, int]]) -> None:
    """Set the job of each trial; `jobs` holds (trial number, job)."""
    db.executemany(
        "UPDATE trials SET job = ?, state = NULL, reported = 0, reports = NULL"
        " WHERE sweep = ? AND number = ?",
        [(job, sweep, number) for number, job in jobs],
    )


def trials(db: Database, sweep: int) -> list[TrialRow]:
    rows = db.execute(
        "SELECT t.number, t.identity, t.point, t.job, t.reported, t.reports,"
        " coalesce(j.state, t.state), j.cause,"
        " j.attempts, a.started_at, j.ended_at, j.stdout, a.detail, b.folder, j.variables, a.status"
        " FROM trials t"
        " LEFT JOIN jobs j ON j.id = t.job LEFT JOIN attempts a ON a.id = j.attempt"
        " LEFT JOIN request_groups g ON g.id = j.request_group"
        " LEFT JOIN backends b ON b.name = g.backend"
        " WHERE t.sweep = ? ORDER BY t.number",
        (sweep,),
    )
    found = [
        TrialRow(*row)._replace(
            stdout=_stdout(row[11], row[3]),
            files_dir=maybe_text(row[13]),
            output_dir=output_dir_in(row[14]),
        )
        for row in rows
    ]
    after_boot = interrupted(db)
    if not after_boot:
        return found
    return [
        one._replace(state=after_boot[one.job][1]) if one.job in after_boot else one
        for one in found
    ]


def _stdout(stored: bytes | None, job: int) -> str | None:
    """The output file of a trial, which has a path of its own only in the compatible commands."""
    return expand_output(stored, job=job, name=None, array=(None, None), node="")


def count_trials(db: Database, sweep: int) -> int:
    return int(str(db.value("SELECT count(*) FROM trials WHERE sweep = ?", (sweep,))))


def jobs_from(db: Database, sweep: int, first: int) -> list[int]:
    """The jobs of a sweep with this id or a later one."""
    rows = db.execute("SELECT id FROM jobs WHERE sweep = ? AND id >= ? ORDER BY id", (sweep, first))
    return [int(row[0]) for row in rows]


def newest_jobs(db: Database, sweep: int) -> list[int]:
    """Return the newest job of each trial."""
    rows = db.execute("SELECT job FROM trials WHERE sweep = ? AND job IS NOT NULL", (sweep,))
    return [row[0] for row in rows]


def counts(db: Database, sweep: int) -> dict[str, int]:
    """Return the number of trials by the state of their job; `missing`: without a job."""
    rows = db.execute(
        "SELECT coalesce(j.state, t.state, 'missing'), count(*) FROM trials t"
        " LEFT JOIN jobs j ON j.id = t.job WHERE t.sweep = ? GROUP BY 1",
        (sweep,),
    )
    found = {state: count for state, count in rows}
    for job, (before, after) in interrupted(db).items():
        if db.value("SELECT 1 FROM trials WHERE sweep = ? AND job = ?", (sweep, job)):
            found[before] -= 1
            found[after] = found.get(after, 0) + 1
    return {state: count for state, count in found.items() if count}


def of_job(db: Database, job: int) -> tuple[str, int] | None:
    """Return the sweep and trial number of a job; None if it is not a trial."""
    row = db.execute(
        "SELECT s.name, t.number FROM trials t JOIN sweeps s ON s.id = t.sweep WHERE t.job = ?",
        (job,),
    ).fetchone()
    return None if row is None else (to_text(row[0]), row[1])


def sweep_and_trial(db: Database, row: JobRow) -> dict[str, object]:
    """The sweep and trial of a job, for its JSON."""
    sweep, trial = (None if row.sweep is None else of_job(db, row.id)) or (None, None)
    return {"sweep": sweep, "trial": trial}


def trial_of(db: Database, job: int) -> tuple[int, str] | None:
    """Return number and point of a job's trial, even if a newer job runs the trial now."""
    row = db.execute("SELECT number, point FROM trials WHERE job = ?", (job,)).fetchone()
    if row is None:
        row = db.execute(
            "SELECT t.number, t.point FROM jobs j JOIN trials t ON t.sweep = j.sweep"
            " AND t.number = ? WHERE j.id = ?",
            (_number_in(db, job), job),
        ).fetchone()
    return None if row is None else (int(row[0]), str(row[1]))


def reports_of(db: Database, job: int) -> str | None:
    """Return the stored reports of the trial that a job runs."""
    found = db.value("SELECT reports FROM trials WHERE job = ?", (job,))
    return found if isinstance(found, str) else None


def point_of(db: Database, job: int) -> str | None:
    """Return the parameters of a job's trial; None if it is not a trial."""
    found = trial_of(db, job)
    return None if found is None else found[1]


def _number_in(db: Database, job: int) -> int | None:
    """Return the trial number from the environment variables of the job."""
    blob = db.value("SELECT variables FROM jobs WHERE id = ? AND sweep IS NOT NULL", (job,))
    said = dict(unpack_pairs(blob)).get("STOKER_TRIAL", "") if isinstance(blob, bytes) else ""
    return int(said) if said.isdigit() else None


def jobs(db: Database, sweep: int, states: tuple[str, ...]) -> list[int]:
    marks = ", ".join("?" * len(states))
    rows = db.execute(
        f"SELECT id FROM jobs INDEXED BY jobs_by_sweep WHERE sweep = ? AND state IN ({marks})"
        " ORDER BY id",
        (sweep, *states),
    )
    return [row[0] for row in rows]


def save_reports(db: Database, sweep: int, reports: Iterable[tuple[int, int, str]]) -> None:
    """Store the metrics read so far, as (trial number, job, reports).

    Reports of a job that is no longer the newest of its trial are ignored.
    """
    db.executemany(
        "UPDATE trials SET reports = ? WHERE sweep = ? AND number = ? AND job = ?",
        [(text, sweep, number, job) for number, job, text in reports],
    )


def mark_reported(db: Database, sweep: int, numbers: Iterable[int]) -> None:
    db.executemany(
        "UPDATE trials SET reported = 1 WHERE sweep = ? AND number = ?",
        [(sweep, number) for number in numbers],
    )


def remove(db: Database, sweep: int) -> None:
    """Remove a sweep and its trials; its jobs stay as ordinary jobs."""
    db.execute("UPDATE jobs SET sweep = NULL WHERE sweep = ?", (sweep,))
    db.execute("DELETE FROM trials WHERE sweep = ?", (sweep,))
    notes.remove_sweep(db, sweep)
    db.execute("DELETE FROM sweeps WHERE id = ?", (sweep,))
    note_pause(db, sweep, None)


def start_counting(db: Database, sweep: int, *, goes_on: bool = True) -> None:
    """Reset the failure counters of a sweep; with `goes_on`, also resume it."""
    db.execute("UPDATE sweeps SET failed = 0, streak = 0, streak_of = NULL WHERE id = ?", (sweep,))
    if goes_on:
        db.execute("UPDATE sweeps SET stopped = NULL WHERE id = ?", (sweep,))


def stop(db: Database, sweep: int, why: str, now: float) -> int:
    """Stop a sweep and cancel its waiting jobs; returns their number."""
    db.execute("UPDATE sweeps SET stopped = ? WHERE id = ?", (why, sweep))
    note_pause(db, sweep, None)
    ended = db.execute(
        "UPDATE jobs INDEXED BY jobs_by_sweep SET state = 'cancelled', ready = 0, cause = 'sweep',"
        " ended_at = ? WHERE sweep = ? AND state IN ('held', 'queued')",
        (now, sweep),
    ).rowcount
    # Jobs that a backend has not started yet are cancelled by its driver.
    db.execute(
        "UPDATE jobs INDEXED BY jobs_by_sweep SET stop_requested = coalesce(stop_requested, ?)"
        " WHERE sweep = ? AND state = 'submitted'",
        (now, sweep),
    )
    needed = db.execute(
        "SELECT DISTINCT d.needs FROM dependencies d JOIN jobs j ON j.id = d.needs"
        " WHERE d.met = 0 AND j.sweep = ? AND j.state = 'cancelled'",
        (sweep,),
    ).fetchall()
    for (job,) in needed:
        release_dependents(db, job, "cancelled", now)
    return ended


def judge(db: Database, job: JobToJudge, verdict: Verdict) -> Verdict:
    """What becomes of a trial: a stopped sweep starts no further attempts."""
    by_user = verdict.cause == "user"
    sql = "SELECT 1 FROM sweeps WHERE id = ? AND stopped IS NOT NULL"
    if (by_user or verdict.delay is not None) and db.value(sql, (job.sweep,)):
        return verdict._replace(cause="sweep") if by_user else without_retry(verdict)
    return verdict


def trial_ended(
    db: Database, job: JobToJudge, state: str, verdict: Verdict, detail: str | None, now: float
) -> bool:
    """Count the end of a trial; returns whether its sweep was stopped because of it.

    `detail` is the evidence of the cause, or the last error in the log.
    """
    sweep = job.sweep
    if state == "done":
        db.execute("UPDATE sweeps SET streak = 0, streak_of = NULL WHERE id = ?", (sweep,))
    if sweep is None or state not in ("failed", "lost"):
        return False
    how, kind = failure(verdict, detail), alike(verdict, detail)
    row = db.execute(
        "UPDATE sweeps SET failed = failed + 1, streak_of = ?,"
        " streak = CASE WHEN streak_of = ? THEN streak + 1 ELSE 1 END"
        " WHERE id = ? AND stopped IS NULL"
        " RETURNING failed, streak, max_fails, same_fails",
        (kind, kind, sweep),
    ).fetchone()
    if row is None:
        return False
    failed, streak, max_fails, same_fails = row
    why = stop_reason(how, failed, max_fails, streak, same_fails)
    if why is not None:
        stop(db, sweep, f"{why} (stoker log {job.job})", now)
    return why is not None


def stop_reason(
    how: str, failed: int, max_fails: int | None, streak: int, same_fails: int | None
) -> str | None:
    """Return why a sweep stops after a trial failed; None if it continues. `how`: see `failure`."""
    if same_fails and streak >= same_fails:
        return f"{streak} trials in a row failed in the same way: {how}"
    if max_fails and failed >= max_fails:
        return f"{failed} trials failed, the last one with {how}"
    return None


def alike(verdict: Verdict, detail: str | None) -> str:
    """Return a text that is equal for equal failures: numbers in the message are masked."""
    return failure(verdict, masked(detail) if detail else None)


def failure(verdict: Verdict, detail: str | None) -> str:
    """Return how a trial failed, in words."""
    if verdict.exit_code:
        how = f"exit code {verdict.exit_code}"
    elif verdict.signal:
        how = f"signal {verdict.signal}"
    else:
        how = verdict.cause
    if verdict.cause not in ("exit", "signal", how):
        how = f"{verdict.cause} ({how})"
    if detail:
        how += f": {detail[:_EVIDENCE_CHARS]}"
    return how


def metric_name(db: Database, sweep: int) -> str | None:
    """The name of a sweep's metric; None if it has none."""
    name = db.value("SELECT json_extract(spec, '$.metric.name') FROM sweeps WHERE id = ?", (sweep,))
    return None if name is None else str(name)
