"""Job identity: how a line is matched with a job of an earlier run."""

from __future__ import annotations

from stoker.client.submit.job_identity import Occurrences, job_identity
from stoker.engine.model import Context, JobSpec

HERE = Context("/home/ada", (("TERM", "xterm"),), 0o022, "/bin/sh")
TRAIN = JobSpec(("python train.py",), HERE)


def test_environment_of_the_login_is_not_part_of_a_job() -> None:
    elsewhere = TRAIN._replace(context=HERE._replace(env=(("TERM", "dumb"),), shell="/bin/bash"))
    assert job_identity(TRAIN, (), ()) == job_identity(elsewhere, (), ())


def test_declared_variables_count_in_any_order_and_the_last_value_wins() -> None:
    one = job_identity(TRAIN, [("A", "1"), ("B", "2")], ())
    assert one == job_identity(TRAIN, [("B", "0"), ("B", "2"), ("A", "1")], ())
    assert one != job_identity(TRAIN, [("A", "1"), ("B", "3")], ())
    assert one != job_identity(TRAIN, [("A", "1")], ())


def test_words_are_not_the_same_job_as_shell_text() -> None:
    words = TRAIN._replace(argv=("python", "train.py"), shell=False)
    assert job_identity(TRAIN, (), ()) != job_identity(words, (), ())


def test_text_that_is_not_utf8_has_an_identity() -> None:
    odd = TRAIN._replace(argv=("python \udcff",))
    assert job_identity(odd, (), ()) != job_identity(TRAIN, (), ())


def test_identical_jobs_are_numbered_in_their_order() -> None:
    occurrences = Occurrences()
    assert [occurrences.next_key(key) for key in "aba"] == ["a:0", "b:0", "a:1"]
