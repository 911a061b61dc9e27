"""Arrays in the store: ids, limits, reruns and removal."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.engine.model import AfterSelector
from stoker.engine.store import arrays, changes, edits, job_queries, ready_jobs
from stoker.engine.store.database import Database
from stoker.engine.store.submit import Submission
from stoker.errors import NotFound
from stoker.text.selectors import parse_selector
from tests.engine.store.builders import a_spec, a_store, add


@pytest.fixture
def db(tmp_path: Path) -> Database:
    return a_store(tmp_path)


def selected(db: Database, text: str) -> list[int]:
    return job_queries.select(db, parse_selector(text))


def test_array_is_one_job_per_index_with_consecutive_ids(db: Database) -> None:
    [before] = add(db, a_spec())
    jobs = add(db, a_spec(array="3-9:3", name="train", tags=("a", "b")))
    assert jobs == [before + 1, before + 2, before + 3]
    rows = job_queries.jobs(db, jobs)
    assert [(row.batch, row.batch_index, row.array_index) for row in rows] == [
        (jobs[0], 0, 3), (jobs[0], 1, 6), (jobs[0], 2, 9),
    ]  # fmt: skip
    assert {row.name for row in rows} == {"train"}
    assert [job_queries.tags(db, job) for job in jobs] == [["a", "b"]] * 3


def test_array_without_a_limit_shares_the_request_group_of_other_jobs(db: Database) -> None:
    jobs = [*add(db, a_spec(), a_spec(array="0-2")), *add(db, a_spec(array="0-2"))]
    assert len({job_queries.job(db, job).request_group for job in jobs}) == 1


def test_jobs_of_a_limited_array_are_a_request_group_of_their_own(db: Database) -> None:
    first = add(db, a_spec(array="0-2%2"))
    second = add(db, a_spec(array="0-2%1"))
    found = ready_jobs.ready_groups(db)
    requests = [ready_jobs.load_group(db, group).request.array for group in found]
    assert requests == [first[0], second[0]]
    assert arrays.limits(db, [0, *requests]) == {f"array:{first[0]}": 2, f"array:{second[0]}": 1}


def test_limit_can_be_changed_removed_and_added(db: Database) -> None:
    limited, free = add(db, a_spec(array="0-2%2"))[0], add(db, a_spec(array="0-2"))[0]
    edits.set_array_limit(db, limited, 5)
    edits.set_array_limit(db, free, 1)
    assert arrays.limits(db, [limited, free]) == {f"array:{limited}": 5, f"array:{free}": 1}
    assert {job_queries.job(db, job).request.array for job in selected(db, f"array:{free}")} == {
        free
    }
    edits.set_array_limit(db, limited, None)
    assert arrays.limits(db, [limited]) == {}


def test_selectors_find_jobs_by_index(db: Database) -> None:
    jobs = add(db, a_spec(array="10-40:10"))
    assert selected(db, f"{jobs[0]}_30") == [jobs[2]]
    assert selected(db, f"{jobs[0]}_15-30") == jobs[1:3]
    assert selected(db, f"array:{jobs[0]}") == jobs
    assert selected(db, str(jobs[0])) == [jobs[0]]
    for text, message in (
        (f"{jobs[0]}_3", "there is no index 3 in array"),
        ("array:99", "there is no array 99"),
    ):
        with pytest.raises(NotFound, match=message):
            selected(db, text)


def test_rerun_replaces_the_job_of_its_index(db: Database) -> None:
    jobs = add(db, a_spec(array="0-2%1"))
    changes.cancel(db, jobs, 1001.0)
    [again] = changes.rerun(db, [jobs[1]], 1002.0)
    row = job_queries.job(db, again)
    assert (row.batch, row.array_index, row.request.array) == (jobs[0], 1, jobs[0])
    assert selected(db, f"{jobs[0]}_1") == [again]
    assert selected(db, f"array:{jobs[0]}") == [jobs[0], jobs[2], again]


def test_array_is_forgotten_with_its_last_job(db: Database) -> None:
    jobs = add(db, a_spec(array="0-1%1"))
    changes.cancel(db, jobs, 1001.0)
    changes.remove(db, jobs[:1])
    assert arrays.load(db, jobs[0]) == arrays.ArrayRow(jobs[0], "0,1", 1)
    changes.remove(db, jobs[1:])
    assert arrays.load(db, jobs[0]) is None


def test_repeated_submit_adds_only_the_missing_indices(db: Database) -> None:
    first = add(db, a_spec(array="0-2", dedupe="key"))
    receipt = Submission(db).add([a_spec(array="0-4", dedupe="key")], 1001.0)
    assert (receipt.added, receipt.existing) == (2, tuple(first))
    new = job_queries.jobs(db, receipt.ids[:2])
    assert [(row.array_index, row.dedupe) for row in new] == [(3, "key_3"), (4, "key_4")]
    assert Submission(db).add([a_spec(array="0-4", dedupe="key")], 1002.0).added == 0


def test_arrays_and_other_lines_of_a_file_have_their_own_batches(db: Database) -> None:
    jobs = add(db, a_spec("a"), a_spec("b", array="5-6"), a_spec("c"))
    rows = job_queries.jobs(db, jobs)
    assert [(row.batch, row.batch_index, row.array_index) for row in rows] == [
        (jobs[0], 0, None), (jobs[1], 0, 5), (jobs[1], 1, 6), (jobs[0], 3, None),
    ]  # fmt: skip


def test_every_job_of_an_array_waits_for_the_same_jobs(db: Database) -> None:
    [first] = add(db, a_spec())
    jobs = add(db, a_spec(array="0-2", after=(AfterSelector("@"),)))
    assert [job_queries.dependencies(db, job) for job in jobs] == [[(first, "ok", False)]] * 3
    assert {job_queries.job(db, job).blockers for job in jobs} == {1}


def test_output_paths_have_the_values_of_the_job(db: Database) -> None:
    jobs = add(db, a_spec(array="8-9", name="x/y", stdout="/o/%x-%A_%3a-%j.%%", stderr="/o/%a"))
    row = job_queries.job(db, jobs[1])
    assert row.stdout == f"/o/x_y-{jobs[0]}_009-{jobs[1]}.%"
    assert row.stderr == "/o/9"
    [ready] = [
        job
        for group in ready_jobs.ready_groups(db)
        for job in ready_jobs.first(db, ready_jobs.load_group(db, group), 9)
        if job.id == jobs[1]
    ]
    assert (ready.stdout, ready.stderr) == (row.stdout, row.stderr)
    [plain] = add(db, a_spec(stdout="/o/%A-%a-%x"))
    assert job_queries.job(db, plain).stdout == f"/o/{plain}-0-job"
