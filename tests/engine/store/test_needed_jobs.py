"""The jobs that `--after` finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.client.submit.option_values import AFTER
from stoker.engine.model import AfterSelector, Dependency
from stoker.engine.store import changes, job_queries
from stoker.engine.store.database import Database
from stoker.engine.store.needed_jobs import Needed, needed_jobs
from stoker.errors import Conflict, Error, NotFound, UsageError
from tests.engine.store.builders import a_spec, a_store, add


@pytest.fixture
def db(tmp_path: Path) -> Database:
    return a_store(tmp_path)


def end(db: Database, state: str, *jobs: int) -> None:
    for job in jobs:
        db.execute("UPDATE jobs SET state = ?, ready = 0 WHERE id = ?", (state, job))


def found(db: Database, text: str) -> list[int]:
    return [one.job for one in needed_jobs(db, AFTER.parse(text))]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("7", Dependency(7, "ok")),
        ("7:any", Dependency(7, "any")),
        ("@", AfterSelector("@", "ok")),
        ("@~2:notok", AfterSelector("@~2", "notok")),
        ("3-9:any", AfterSelector("3-9", "any")),
        ("7_3", AfterSelector("7_3", "ok")),
        ("train", AfterSelector("train", "ok")),
        ("train:any", AfterSelector("train", "any")),
        ("name:any", AfterSelector("name", "any")),
        ("name:train", AfterSelector("name:train", "ok")),
        ("tag:a:notok", AfterSelector("tag:a", "notok")),
        ("array:7:any", AfterSelector("array:7", "any")),
    ],
)
def test_dependency_is_a_selector_with_a_condition(text: str, parsed: object) -> None:
    assert AFTER.parse(text) == (parsed,)
    assert AFTER.check(text) == (parsed,)
    assert AFTER.check([text]) == (parsed,)


@pytest.mark.parametrize(
    "text",
    ["", "7:", "7:bad", "train:bad", ":ok", "7,", "9-3", "@x", "1:2:ok", "running", "all", "²"],
)
def test_text_that_is_not_a_dependency_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        AFTER.parse(text)


def test_at_sign_is_the_newest_job_before_the_submit(db: Database) -> None:
    [old, new] = [*add(db, a_spec()), *add(db, a_spec())]
    assert (found(db, "@"), found(db, "@~1")) == ([new], [old])
    last = add(db, a_spec("a", after=AFTER.parse("@")), a_spec("b", after=AFTER.parse("@")))
    # Both lines wait for the job before the submit, not for each other.
    assert [job_queries.dependencies(db, job)[0][0] for job in last] == [new, new]
    with pytest.raises(NotFound, match="the queue has too few jobs"):
        found(db, "@~9")


def test_line_of_a_file_can_wait_for_earlier_lines(db: Database) -> None:
    previous = (AfterSelector("@", "any", in_file=True),)
    jobs = add(
        db,
        a_spec("a", name="first"),
        a_spec("b", after=previous),
        a_spec("c", after=(AfterSelector("first", in_file=True),)),
        a_spec("d", array="0-1", after=previous),
    )
    needs = [[one[0] for one in job_queries.dependencies(db, job)] for job in jobs]
    assert needs == [[], [jobs[0]], [jobs[0]], [jobs[2]], [jobs[2]]]


def test_range_finds_the_jobs_that_exist(db: Database) -> None:
    jobs = add(db, *[a_spec() for _ in range(4)])
    assert found(db, f"{jobs[1]}-99") == jobs[1:]
    with pytest.raises(NotFound, match="there are no jobs 50-60 to wait for"):
        found(db, "50-60")


def test_name_finds_unfinished_jobs_or_the_newest_one(db: Database) -> None:
    a, b, c = (add(db, a_spec(name="train"))[0] for _ in range(3))
    end(db, "failed", a)
    assert found(db, "train") == [b, c]
    end(db, "done", b)
    assert found(db, "name:train") == [c]
    end(db, "done", c)
    assert needed_jobs(db, AFTER.parse("train")) == [Needed(c, "ok", True)]


def test_name_finds_finished_jobs_of_the_same_array(db: Database) -> None:
    jobs = add(db, a_spec(array="0-2", name="train"))
    end(db, "done", jobs[0])
    assert found(db, "train") == jobs
    end(db, "failed", jobs[1])
    with pytest.raises(Conflict) as caught:
        found(db, "train")
    assert caught.value.message == (
        f"job {jobs[1]} has failed, so a job with --after train:ok would never start"
    )
    assert caught.value.hint == f"use --after train:any, or rerun job {jobs[1]} first"
    assert found(db, "train:any") == jobs


def test_rerun_replaces_a_failed_job(db: Database) -> None:
    jobs = add(db, a_spec(array="0-1", name="train", tags=("t",)))
    end(db, "done", jobs[0])
    end(db, "failed", jobs[1])
    [again] = changes.rerun(db, [jobs[1]], 1001.0)
    for text in ("train", "tag:t", f"array:{jobs[0]}", f"{jobs[0]}-{again}"):
        assert found(db, text) == [jobs[0], again], text


def test_word_that_is_a_name_and_another_jobs_tag_is_ambiguous(db: Database) -> None:
    [named], [tagged] = add(db, a_spec(name="x")), add(db, a_spec(tags=("x",)))
    with pytest.raises(UsageError) as caught:
        found(db, "x")
    assert caught.value.hint == "write name:x or tag:x"
    assert (found(db, "name:x"), found(db, "tag:x")) == ([named], [tagged])


def test_id_in_a_slurm_script_stands_for_its_array(db: Database) -> None:
    [plain], jobs = add(db, a_spec()), add(db, a_spec(array="0-1"))
    assert found(db, f"job:{plain}") == [plain]
    assert found(db, f"job:{jobs[0]}") == jobs
    assert found(db, f"{jobs[0]}_1") == jobs[1:]


@pytest.mark.parametrize("text", ["nonsense", "tag:x", "7_3", "array:7", "sweep:x", "7"])
def test_unknown_job_is_an_error_and_nothing_is_added(db: Database, text: str) -> None:
    with pytest.raises(NotFound):
        add(db, a_spec(), a_spec(after=AFTER.parse(text)))
    assert job_queries.counts(db) == {}


def test_too_many_dependencies_are_refused(db: Database) -> None:
    jobs = add(db, a_spec(array="0-1999"))
    with pytest.raises(Error, match="1001 jobs that wait for 2000 jobs each"):
        add(db, a_spec(array="0-1000", after=AFTER.parse(f"array:{jobs[0]}")))
