"""Sweep, backend, first start and command of jobs, for comparisons and charts of many jobs."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.engine.store.database import Database, id_list
from stoker.record import Record
from stoker.text.byte_text import maybe_text, unpack_words


class RunFacts(Record):
    sweep: str | None = None
    backend: str = "local"  # this host
    started_at: float | None = None  # of the first attempt
    argv: tuple[str, ...] = ()
    shell: bool = False


def of_jobs(db: Database, jobs: Iterable[int]) -> dict[int, RunFacts]:
    """The facts of the jobs that are in the database."""
    rows = db.execute(
        "SELECT j.id, s.name, g.backend, (SELECT min(started_at) FROM attempts WHERE job = j.id),"
        " j.argv, j.shell"
        " FROM jobs j JOIN request_groups g ON g.id = j.request_group"
        " LEFT JOIN sweeps s ON s.id = j.sweep WHERE j.id IN (SELECT value FROM json_each(?))",
        (id_list(jobs),),
    )
    return {
        job: RunFacts(
            sweep=maybe_text(name),
            backend=backend or "local",
            started_at=start,
            argv=unpack_words(argv),
            shell=bool(shell),
        )
        for job, name, backend, start, argv, shell in rows
    }
