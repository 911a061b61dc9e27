"""A set of jobs that a process waits for, and queries about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stoker.engine.store.database import Database, id_list
from stoker.engine.store.interrupted_jobs import interrupted
from stoker.engine.store.needed_jobs import waited_jobs
from stoker.errors import NotFound
from stoker.record import Record
from stoker.states import ACTIVE
from stoker.text.byte_text import to_bytes, to_text
from stoker.text.selectors import id_ranges, parse_selector, split_words

_AMONG = "j.id IN (SELECT value FROM json_each(?))"
_ACTIVE = ", ".join(f"'{state}'" for state in ACTIVE)


class Waited(Record):
    """What a process waits for: jobs, and sweeps with all trials that they have and will get."""

    jobs: list[int]
    sweeps: list[str]

    def ids(self, db: Database) -> list[int]:
        """Return the jobs of this moment; of a trial, the newest job."""
        found = set(self.jobs)
        for name in self.sweeps:
            rows = db.execute(
                "SELECT j.id FROM sweeps s JOIN trials t ON t.sweep = s.id"
                " JOIN jobs j ON j.id = t.job WHERE s.name = ?",
                (to_bytes(name),),
            )
            found.update(row[0] for row in rows)
        return sorted(found)

    def words(self) -> list[str]:
        """Return selectors of the same jobs and sweeps, at any later time."""
        return [*id_ranges(self.jobs), *(f"sweep:{name}" for name in self.sweeps)]

    def will_grow(self, db: Database) -> bool:
        """Whether more trials may follow. If not, `ids` returns all jobs from now on."""
        return not _growing(db).keys().isdisjoint(self.sweeps)


def select_waited(db: Database, words: Iterable[str]) -> Waited:
    """Return what `stoker wait WORDS` waits for: see needed_jobs.py. Raises NotFound.

    Without words: all unfinished jobs and sweeps.
    """
    jobs: set[int] = set()
    names: dict[str, None] = {}
    for word in split_words(words) or ["all"]:
        if word == "all":
            names.update(_growing(db))
        sweep = parse_selector(word).sweep
        if sweep is not None and _is_sweep(db, sweep):
            names[sweep] = None
            continue
        try:
            jobs.update(waited_jobs(db, word))
        except NotFound:
            if not _is_sweep(db, word):
                raise
            names[word] = None
    return Waited(sorted(jobs), list(names))


def _growing(db: Database) -> dict[str, None]:
    """Sweeps whose results decide which trials follow."""
    rows = db.execute("SELECT name FROM sweeps WHERE is_driven = 1 AND stopped IS NULL ORDER BY id")
    return {to_text(row[0]): None for row in rows}


def _is_sweep(db: Database, name: str) -> bool:
    return db.value("SELECT 1 FROM sweeps WHERE name = ?", (to_bytes(name),)) is not None


class QueuedWork(Record):
    """Queued jobs with the same command profile and time limit."""

    profile: int
    time_limit: float | None
    jobs: int


def active_jobs(db: Database, ids: Sequence[int], limit: int) -> list[int]:
    """Return the first of these jobs that have been started and not finished."""
    after_boot = interrupted(db)
    rows = db.execute(
        f"SELECT j.id FROM jobs j WHERE j.state IN ({_ACTIVE}) AND {_AMONG} ORDER BY j.id LIMIT ?",
        (id_list(ids), limit + len(after_boot)),
    )
    return [row[0] for row in rows if row[0] not in after_boot][:limit]


def queued_work(db: Database, ids: Sequence[int]) -> list[QueuedWork]:
    """Return the queued jobs of the set by profile and time limit."""
    rows = db.execute(
        "SELECT j.profile, j.time_limit, count(*) FROM jobs j"
        f" WHERE j.state = 'queued' AND {_AMONG} GROUP BY 1, 2",
        (id_list(ids),),
    )
    return [QueuedWork(*row) for row in rows]


def queued_among(db: Database, jobs: Sequence[int], ids: Sequence[int]) -> list[int]:
    """Return which of `jobs` are queued and in the set."""
    rows = db.execute(
        f"SELECT j.id FROM jobs j WHERE j.state = 'queued' AND {_AMONG} AND {_AMONG}",
        (id_list(jobs), id_list(ids)),
    )
    return [row[0] for row in rows]


def mean_seconds(db: Database, ids: Sequence[int]) -> float | None:
    """Return the mean duration of the newest successful jobs of the set; None if there are none."""
    found = db.value(
        "SELECT avg(seconds) FROM (SELECT a.ended_at - a.started_at AS seconds FROM jobs j"
        f" JOIN attempts a ON a.id = j.attempt WHERE j.state = 'done' AND {_AMONG}"
        " ORDER BY j.id DESC LIMIT 100)",
        (id_list(ids),),
    )
    return None if found is None else float(str(found))
