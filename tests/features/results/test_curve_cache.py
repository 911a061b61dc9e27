"""The cache of curves: files are read incrementally, and memory is bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.features.results.curve_reader import CurveCache, curve_of
from stoker.features.results.reports.reports import JobFiles, Source

RUNNING = Source(job=7, attempts=1, stdout=None, is_finished=False)


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    found = JobFiles(str(tmp_path))
    os.makedirs(os.path.dirname(found.metrics(7)))
    return found


def append(path: str, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def points(cache: CurveCache, *names: str, source: Source = RUNNING) -> list[object]:
    found = cache.lines(source, names)
    return [found[name].points() for name in names]


def test_curve_grows_with_the_file(files: JobFiles) -> None:
    cache = CurveCache(files)
    assert points(cache, "a") == [[]]
    append(files.metrics(7), '{"a": 1, "step": 0}\n{"a": 2, "st')
    assert points(cache, "a", "b") == [[(0, 1)], []]
    append(files.metrics(7), 'ep": 1}\n{"b": 5}\n')
    assert points(cache, "a", "b") == [[(0, 1), (1, 2)], [(0, 5)]]


def test_metrics_of_the_log_and_of_a_second_attempt_grow_too(files: JobFiles) -> None:
    cache = CurveCache(files)
    append(files.log(7, 1), "stoker: a=1 step=0\nstoker: a=2 step=1\n")
    assert points(cache, "a") == [[(0, 1), (1, 2)]]
    append(files.log(7, 1), "stoker: a=3 step=2\n")
    assert points(cache, "a") == [[(0, 1), (1, 2), (2, 3)]]
    append(files.log(7, 2), "stoker: a=9 step=1\n")
    again = RUNNING._replace(attempts=2)
    assert points(cache, "a", source=again) == [[(0, 1), (1, 9)]]
    assert curve_of(files, again, "a") == [(0, 1), (1, 9)]


def test_replaced_file_is_read_from_its_beginning(files: JobFiles) -> None:
    cache = CurveCache(files)
    append(files.metrics(7), '{"a": 1}\n{"a": 2}\n')
    assert points(cache, "a") == [[(0, 1), (1, 2)]]
    os.unlink(files.metrics(7))
    append(files.metrics(7), '{"a": 8}\n')
    assert points(cache, "a") == [[(0, 8)]]


def test_line_that_a_caller_has_does_not_change(files: JobFiles) -> None:
    cache = CurveCache(files)
    append(files.metrics(7), '{"a": 1}\n')
    line = cache.lines(RUNNING, ["a"])["a"]
    append(files.metrics(7), '{"a": 2}\n')
    cache.lines(RUNNING, ["a"])
    assert line.points() == [(0, 1)]


def test_last_line_without_line_end_counts_when_the_job_has_finished(files: JobFiles) -> None:
    cache = CurveCache(files)
    append(files.metrics(7), '{"a": 1}\n{"a": 2}')
    assert points(cache, "a") == [[(0, 1)]]
    finished = RUNNING._replace(is_finished=True)
    assert points(cache, "a", source=finished) == [[(0, 1), (1, 2)]]
    append(files.metrics(7), '\n{"a": 3}\n')  # files of a finished job are not read again
    assert points(cache, "a", source=finished) == [[(0, 1), (1, 2)]]


def test_cache_drops_the_jobs_that_were_used_least_recently(files: JobFiles) -> None:
    cache = CurveCache(files, max_bytes=100_000)
    for job in range(1, 21):
        append(files.metrics(job), "".join(f'{{"a": {n}}}\n' for n in range(1000)))
        line = cache.lines(RUNNING._replace(job=job), ["a"])["a"]
        assert len(line.steps) == 1000
        assert cache.size <= 100_000
    os.unlink(files.metrics(20))
    os.unlink(files.metrics(1))
    finished = RUNNING._replace(is_finished=True)
    assert points(cache, "a", source=finished._replace(job=1)) == [[]]
