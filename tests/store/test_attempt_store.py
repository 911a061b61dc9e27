"""The buffered attempt store writes the same rows as the direct one."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.boot import boot_id
from stoker.core.model import Context, JobSpec, Outcome
from stoker.core.outcome.retry import judge
from stoker.store import attempts, job_queries, ready_jobs
from stoker.store.attempt_store import AttemptStore, BufferedAttemptStore
from stoker.store.database import Database, open_database
from stoker.store.submit import Submission

HERE = Context("/", (), 0o022, "/bin/sh")
# What happens to each of a few jobs, and when the database is read in between.
_STEPS = st.lists(
    st.sampled_from(["claim", "begin", "done", "fail", "flush", "first"]), max_size=40
)


def _play(db: Database, store: AttemptStore, steps: list[str]) -> list[tuple[object, ...]]:
    Submission(db).add([JobSpec(("true",), HERE, retries=1) for _ in range(8)], 1000.0)
    group = ready_jobs.load_group(db, ready_jobs.ready_groups(db)[0])
    running: list[int] = []
    for at, step in enumerate(steps):
        if step == "claim":
            first_jobs = store.first_jobs(group, 1, 0.0)
            if first_jobs:
                job = first_jobs[0]
                claim = attempts.Claim(at + 1, job.id, job.attempts + 1, (0,), None, at, boot_id())
                assert store.claim(job, claim)
                running.append(claim.attempt)
        elif step == "begin" and running:
            store.record_start(running[-1], 7, float(at), float(at))
        elif step in ("done", "fail") and running:
            attempt = running.pop(0)
            facts = store.load_job_to_judge(attempt)
            assert facts is not None
            outcome = Outcome(attempt, 0 if step == "done" else 256, float(at), None, 0.1, 0.2, 3)
            verdict = judge(
                outcome, attempts=facts.attempts, retries=facts.retries, restartable=False,
                stop_requested=False,
            )  # fmt: skip
            store.finish(facts, outcome, verdict, float(at), 0.5)
        elif step == "flush":
            store.flush()
        elif step == "first":
            assert all(job.id for job in store.first_jobs(group, 3, 0.0))
    store.flush()
    rows = db.execute("SELECT * FROM jobs ORDER BY id").fetchall()
    return [*rows, *db.execute("SELECT * FROM attempts ORDER BY id").fetchall()]


@settings(max_examples=60, deadline=None)
@given(_STEPS)
def test_buffered_store_writes_the_same_rows_as_the_direct_one(steps: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        reported = []
        for name, kind in (("at-once", AttemptStore), ("late", BufferedAttemptStore)):
            place = Path(folder, name)
            place.mkdir(0o700)
            db = open_database(str(place), durable=False)
            reported.append(_play(db, kind(db), steps))
            assert (
                len(
                    job_queries.jobs_in_states(
                        db, ("done", "failed", "queued", "starting", "running"), 99
                    )
                )
                == 8
            )
            db.close()
        assert reported[0] == reported[1]
