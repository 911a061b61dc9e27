"""Fill a new database with the rows of a damaged one and make them consistent.

Used by repair.py, which describes the sources.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypedDict

from stoker.engine.model import Context, Request
from stoker.engine.store.database import Database
from stoker.engine.store.repair.salvage import Row, Salvage, Table
from stoker.engine.store.request_groups import group_id
from stoker.engine.store.submit import context_id
from stoker.record import Record
from stoker.states import ACTIVE, FINAL, HELD, QUEUED, RUNNING, STATES, is_satisfied

# Ids to skip, because jobs newer than the last readable record may have used them.
_ID_MARGIN = 100_000
_LOST_COMMAND = ": the record of this job was lost in a repair of the database"


class JournaledStart(Record):
    """An attempt that started according to the runner's journal."""

    attempt: int
    job: int
    number: int
    at: float
    mono: float
    boot: str
    devices: tuple[int, ...]


class Counts(TypedDict):
    jobs: int
    salvaged: int
    from_snapshot: int
    from_journal: int
    held: int
    missing: tuple[int, ...]
    missing_is_known: bool


class StoredTables:
    """The tables of a snapshot: their schema and their rows."""

    def __init__(self, version: int, creates: list[tuple[str, str, str]]) -> None:
        self.version = version
        self.creates = [sql for _, _, sql in creates]
        self.statements = {name: sql for kind, name, sql in creates if kind == "table"}
        self.rows: dict[str, list[Row]] = {}


class Rebuild:
    def __init__(self, db: Database, salvage: Salvage, snapshot: StoredTables, now: float) -> None:
        self._db = db
        self._salvage = salvage
        self._snapshot = snapshot
        self._now = now
        self._doubtful: set[int] = set()  # jobs whose record may be out of date
        self._from_snapshot: set[int] = set()
        self._from_journal: set[int] = set()
        self._held = 0
        self._next_job = 1
        self._is_complete = self._table("jobs").is_whole
        self._knows_ids = self._table("meta").is_whole and salvage.log_is_whole

    def _table(self, name: str) -> Table:
        return self._salvage.tables.get(name) or Table()

    # -- rows ----------------------------------------------------------------------------------

    def fill(self) -> None:
        """Insert the rows of all sources, best first; earlier rows are not replaced."""
        for name in self._snapshot.statements:
            table = self._table(name)
            sure = [row for row in table.sure.values() if self._is_plausible(name, row)]
            self._insert(name, sure)
            if table.is_whole and len(sure) == len(table.sure):
                continue
            doubtful = [row for row in table.doubtful.values() if self._is_plausible(name, row)]
            before = self._ids() if name == "jobs" else set()
            self._insert(name, doubtful)
            if name == "jobs":
                self._is_complete = False
                self._doubtful = self._ids() - before
                before = self._ids()
            self._insert(name, self._snapshot.rows.get(name, ()))
            if name == "jobs":
                self._from_snapshot = self._ids() - before

    def _insert(self, name: str, rows: Iterable[Row]) -> None:
        columns = [row[1] for row in self._db.execute(f"PRAGMA table_info({name})")]
        rows = [{column: row.get(column) for column in columns} for row in rows]
        places = ", ".join(f":{column}" for column in columns)
        self._db.executemany(f"INSERT OR IGNORE INTO {name} VALUES ({places})", rows)

    def _ids(self) -> set[int]:
        return {row[0] for row in self._db.execute("SELECT id FROM jobs")}

    def _is_plausible(self, name: str, row: Row) -> bool:
        """Whether the values of a row are plausible: damage inside a record may go unnoticed."""
        if name == "jobs":
            return row["state"] in STATES and isinstance(row["id"], int) and row["id"] > 0
        return True

    # -- consistency ---------------------------------------------------------------------------

    def make_consistent(self, journaled: list[JournaledStart], tag: int | None) -> None:
        """Make the rows consistent with each other and with the journal."""
        self._restore_references()
        self._restore_dependencies()
        self._apply_journal(journaled)
        self._hold_jobs_that_may_have_run(journaled)
        self._restore_meta(journaled, tag)

    def _restore_references(self) -> None:
        """Hold jobs whose request or context is lost."""
        lost = [
            row[0]
            for row in self._db.execute(
                "SELECT id FROM jobs WHERE request_group NOT IN (SELECT id FROM request_groups)"
                " OR context NOT IN (SELECT id FROM contexts)"
            )
        ]
        if lost:
            request_group = group_id(self._db, Request(gpus=1), "")
            context = context_id(self._db, Context("/", (), 0o22, "/bin/sh"))
            for job in lost:
                self._db.execute(
                    "UPDATE jobs SET"
                    " request_group = CASE WHEN request_group IN (SELECT id FROM request_groups)"
                    " THEN request_group ELSE ? END,"
                    " context = CASE WHEN context IN (SELECT id FROM contexts) THEN context"
                    " ELSE ? END WHERE id = ?",
                    (request_group, context, job),
                )
                self._hold(job, "held: its request, folder or environment was lost")
        marks = ", ".join(f"'{state}'" for state in ACTIVE)
        self._db.execute(
            "UPDATE jobs SET state = 'lost', cause = 'lost', ended_at = coalesce(ended_at, ?)"
            f" WHERE state IN ({marks}) AND (attempt IS NULL"
            " OR attempt NOT IN (SELECT id FROM attempts))",
            (self._now,),
        )

    def _restore_dependencies(self) -> None:
        rows = self._db.execute(
            "SELECT d.job, d.needs, d.condition, j.state FROM dependencies d"
            " LEFT JOIN jobs j ON j.id = d.needs WHERE d.met = 0"
        ).fetchall()
        for job, needs, condition, state in rows:
            if state is not None and is_satisfied(state, condition):
                self._db.execute(
                    "UPDATE dependencies SET met = 1 WHERE job = ? AND needs = ?", (job, needs)
                )
        count = "(SELECT count(*) FROM dependencies d WHERE d.job = jobs.id AND d.met = 0)"
        for (job,) in self._db.execute(
            f"SELECT id FROM jobs WHERE state = 'queued' AND blockers > {count}"
        ).fetchall():
            if not self._table("dependencies").is_whole:
                self._hold(job, "held: its dependencies were lost")
        self._db.execute(f"UPDATE jobs SET blockers = {count} WHERE state IN ('queued', 'held')")
        for (job,) in self._db.execute(
            "SELECT DISTINCT d.job FROM dependencies d JOIN jobs j ON j.id = d.job"
            " WHERE d.met = 0 AND j.state = 'queued' AND d.needs NOT IN (SELECT id FROM jobs)"
        ).fetchall():
            self._hold(job, "held: a job that it depends on was lost")

    def _apply_journal(self, journaled: list[JournaledStart]) -> None:
        """Add attempts that started and have no record; recovery determines their state."""
        given_out = int(str(self._db.value("SELECT value FROM meta WHERE key = 'next_job'") or 0))
        newest: dict[int, JournaledStart] = {}
        for one in journaled:
            if one.number >= newest.get(one.job, one).number:
                newest[one.job] = one
        for one in newest.values():
            row = self._db.execute(
                "SELECT state, attempts, attempt FROM jobs WHERE id = ?", (one.job,)
            ).fetchone()
            if row is None:
                if self._is_complete and one.job < given_out:
                    continue  # the job was removed
                self._insert_journaled_job(one)
            elif row[1] > one.number or row[2] == one.attempt or row[0] in FINAL:
                continue  # the record is newer than this start
            devices = ",".join(map(str, one.devices))
            self._db.execute(
                "INSERT OR REPLACE INTO attempts (id, job, number, devices, claimed_at, started_at,"
                " started_mono, boot) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (one.attempt, one.job, one.number, devices, one.at, one.at, one.mono, one.boot),
            )
            self._db.execute(
                "UPDATE jobs SET state = ?, ready = 0, attempts = ?, attempt = ? WHERE id = ?",
                (RUNNING, one.number, one.attempt, one.job),
            )

    def _insert_journaled_job(self, one: JournaledStart) -> None:
        """Insert a job that is only known from the journal."""
        self._from_journal.add(one.job)
        self._db.execute(
            "INSERT INTO jobs (id, state, ready, request_group, profile, priority, shell, argv,"
            " context, submitted_at, name) VALUES (?, ?, 0, ?, 0, 0, 1, ?, ?, ?, ?)",
            (
                one.job,
                RUNNING,
                group_id(self._db, Request(gpus=len(one.devices)), ""),
                _LOST_COMMAND.encode(),
                context_id(self._db, Context("/", (), 0o22, "/bin/sh")),
                one.at,
                b"record-lost",
            ),
        )

    def _hold_jobs_that_may_have_run(self, journaled: list[JournaledStart]) -> None:
        """Hold waiting jobs whose record may be out of date and that have no newer one."""
        ran = {(one.job, one.number) for one in journaled}
        old = self._doubtful | self._from_snapshot
        rows = self._db.execute(
            "SELECT id, state, attempts FROM jobs WHERE state IN ('queued', 'starting')"
        ).fetchall()
        for job, state, attempts in rows:
            may_be_old = job in old or not self._salvage.log_is_whole
            if state == QUEUED:
                if may_be_old or (job, attempts + 1) in ran or self._has_log(job, attempts + 1):
                    self._hold(job, "held, because it may have run since")
            elif may_be_old:
                # Recovery returns `starting` jobs to the queue but searches for `running` ones.
                self._db.execute("UPDATE jobs SET state = ? WHERE id = ?", (RUNNING, job))
        self._db.execute(
            "UPDATE jobs SET ready = (state = 'queued' AND blockers = 0"
            " AND (eligible_at IS NULL OR eligible_at <= ?))",
            (self._now,),
        )

    def _has_log(self, job: int, number: int) -> bool:
        place = os.path.join(self._db.folder, "jobs", str(job // 1000), f"{job}-{number}.log")
        return os.path.exists(place)

    def _hold(self, job: int, why: str) -> None:
        changed = self._db.execute(
            "UPDATE jobs SET state = ?, ready = 0 WHERE id = ? AND state IN ('queued', 'starting')",
            (HELD, job),
        ).rowcount
        if changed:
            self._held += 1
            self._db.execute(
                "INSERT INTO events (job, at, kind, data) VALUES (?, ?, 'restored', ?)",
                (job, self._now, why),
            )

    def _restore_meta(self, journaled: list[JournaledStart], tag: int | None) -> None:
        meta = dict(self._db.execute("SELECT key, value FROM meta").fetchall())
        if tag is None:
            tag = meta.get("tag") or int.from_bytes(os.urandom(4), "big") >> 2 | 1
        highest = max(self._ids(), default=0)
        next_job = max(meta.get("next_job") or 1, highest + 1, self._highest_log() + 1)
        attempts = self._db.value("SELECT coalesce(max(id), 0) FROM attempts")
        known = [int(str(attempts)), *(one.attempt for one in journaled)]
        next_attempt = max(meta.get("next_attempt") or 1, max(known) + 1)
        if not self._knows_ids:
            next_attempt += _ID_MARGIN
        self._next_job = next_job
        values = {
            "tag": tag,
            "next_job": next_job if self._knows_ids else next_job + _ID_MARGIN,
            "next_attempt": next_attempt,
        }
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(values.items()))

    def _highest_log(self) -> int:
        place = os.path.join(self._db.folder, "jobs")
        highest = 0
        for group in os.listdir(place) if os.path.isdir(place) else []:
            for name in os.listdir(os.path.join(place, group)):
                digits = name.partition("-")[0]
                highest = max(highest, int(digits) if digits.isdigit() else 0)
        return highest

    def counts(self) -> Counts:
        """Return the numbers for `Repaired`. Call this after `make_consistent`."""
        ids = self._ids()
        is_complete = self._is_complete and self._salvage.log_is_whole
        missing = [] if is_complete else sorted(set(range(1, self._next_job)) - ids)
        return {
            "jobs": len(ids),
            "salvaged": len(ids - self._from_snapshot - self._from_journal),
            "from_snapshot": len(self._from_snapshot),
            "from_journal": len(self._from_journal),
            "held": self._held,
            "missing": tuple(missing),
            "missing_is_known": self._knows_ids,
        }
