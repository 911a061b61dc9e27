"""Chains of dependents that are longer than the recursion limit."""

from __future__ import annotations

from pathlib import Path

from stoker.engine.model import Context, Dependency, JobSpec
from stoker.engine.store import changes
from stoker.engine.store.database import open_database
from stoker.engine.store.submit import Submission


def test_chain_of_two_thousand_jobs_is_cancelled_with_its_first(tmp_path: Path) -> None:
    db = open_database(str(tmp_path), durable=False)
    submission = Submission(db)
    context = Context("/", (), 0o022, "/bin/sh")
    for job in range(1, 2001):
        after = (Dependency(job - 1),) if job > 1 else ()
        submission.add([JobSpec(("true",), context, after=after)], 0.0)
    assert changes.cancel(db, [1], 1.0) == (1, 0)
    assert db.value("SELECT count(*) FROM jobs WHERE state = 'cancelled'") == 2000
    db.close()
