"""How jobs are divided into chunks, and which requests nodes can satisfy."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.job_settings import DEFAULT_SETTINGS, JobSettings
from stoker.engine.model import JobSpec, ReadyJob, Request
from stoker.errors import UsageError
from stoker.features.backends.chunk_files import OF_THE_QUEUE, chunk_job, from_line, to_line
from stoker.features.backends.chunks import (
    LONG_SECONDS,
    MAX_JOBS,
    UNKNOWN_SECONDS,
    Candidate,
    divide,
    needed_seconds,
)
from stoker.features.backends.nodes import DOWN, Node, impossible_reason
from stoker.features.backends.options import RAY, SLURM, check_options, split_options

_SECONDS = st.none() | st.sampled_from((0.0, 0.01, 1.0, 599.0, 600.0, 86400.0)) | st.floats(0, 1e6)
_LIMITS = st.none() | st.floats(1, 1e6)


@st.composite
def _jobs(draw: st.DrawFn) -> list[Candidate]:
    pairs = draw(st.lists(st.tuples(_SECONDS, _LIMITS), max_size=60))
    return [
        Candidate(id=id, seconds=seconds, time_limit=limit)
        for id, (seconds, limit) in enumerate(pairs, 1)
    ]


@given(jobs=_jobs(), slots=st.integers(1, 20), is_single=st.booleans())
def test_every_job_is_in_exactly_one_chunk(
    jobs: list[Candidate], slots: int, is_single: bool
) -> None:
    chunks = divide(jobs, slots, is_single=is_single)
    assert sorted(id for chunk in chunks for id in chunk.jobs) == [job.id for job in jobs]
    assert all(chunk.jobs for chunk in chunks)
    assert all(list(chunk.jobs) == sorted(chunk.jobs) for chunk in chunks)
    assert all(len(chunk.jobs) == 1 for chunk in chunks if chunk.is_single or is_single)


@given(jobs=_jobs(), slots=st.integers(1, 20), grace=st.floats(0, 100))
def test_allocation_lasts_longer_than_each_of_its_jobs_may(
    jobs: list[Candidate], slots: int, grace: float
) -> None:
    by_id = {job.id: job for job in jobs}
    for chunk in divide(jobs, slots, grace=grace):
        members = [by_id[id] for id in chunk.jobs]
        if chunk.time_limit is None:
            assert any(job.time_limit is None for job in members)
            continue
        for job in members:
            if job.time_limit is not None:
                assert chunk.time_limit >= job.time_limit + grace + 59.9
        work = sum(job.seconds or 0.0 for job in members)
        if not chunk.is_single and chunk.unknown_seconds is None:
            assert chunk.time_limit >= 4 * work


@given(jobs=_jobs(), slots=st.integers(1, 20))
def test_jobs_of_different_classes_do_not_share_an_allocation(
    jobs: list[Candidate], slots: int
) -> None:
    by_id = {job.id: job for job in jobs}
    for chunk in divide(jobs, slots):
        if len(chunk.jobs) == 1:
            continue
        durations = [by_id[id].seconds for id in chunk.jobs]
        if None in durations:
            assert set(durations) == {None}
            assert chunk.unknown_seconds == UNKNOWN_SECONDS
        else:
            assert all(seconds is not None and seconds < LONG_SECONDS for seconds in durations)
            assert chunk.unknown_seconds is None


def _same(count: int, seconds: float | None) -> list[Candidate]:
    return [Candidate(id=id, seconds=seconds) for id in range(count)]


@pytest.mark.parametrize(
    ("count", "seconds", "slots", "sizes"),
    [
        (24, 1.0, 12, [5, 5, 5, 5, 4]),  # at least five seconds of work each
        (24, 300.0, 2, [2] * 10 + [1] * 4),  # at most ten minutes of work
        (3, 900.0, 12, [1, 1, 1]),
        (12, None, 12, [1] * 12),
        (24, None, 12, [2] * 12),
        (5, 0.001, 12, [5]),
        (2 * MAX_JOBS + 2, 0.0, 1, [MAX_JOBS, MAX_JOBS, 2]),
    ],
)
def test_size_of_chunks_follows_the_length_of_jobs(
    count: int, seconds: float | None, slots: int, sizes: list[int]
) -> None:
    assert [len(chunk.jobs) for chunk in divide(_same(count, seconds), slots)] == sizes


@given(count=st.integers(1, 2000), seconds=st.floats(0.1, 599), slots=st.integers(1, 50))
def test_chunks_become_smaller_towards_the_end(count: int, seconds: float, slots: int) -> None:
    sizes = [len(chunk.jobs) for chunk in divide(_same(count, seconds), slots)]
    assert sizes == sorted(sizes, reverse=True)
    assert all((size - 1) * seconds < 600 for size in sizes)
    assert all(size * seconds >= 5 for size in sizes[:-1])
    # No chunk is more than an equal share of the work, unless that is too little.
    assert (sizes[0] - 1) * seconds < max(5.0, count * seconds / (2 * slots)) + 1e-6


def test_jobs_of_unknown_length_are_dealt_out_in_turn() -> None:
    chunks = divide(_same(6, None), 2)
    assert [chunk.jobs for chunk in chunks] == [(0, 2, 4), (1, 3, 5)]


# -- nodes ---------------------------------------------------------------------------------------

_NODES = (
    Node(name="a", gpus=4, model="NVIDIA A100", gpu_memory=40 << 30, cpus=32),
    Node(name="b", gpus=8, state=DOWN, model="NVIDIA H200", gpu_memory=140 << 30, cpus=64),
    Node(name="c", gpus=0),
)


@pytest.mark.parametrize(
    ("request_", "part"),
    [
        (Request(gpus=8), None),  # node b is down now, and may come back
        (Request(gpus=0), None),
        (Request(gpus=9), "a node of the backend `lab` has at most 8 GPUs"),
        (Request(gpus=1, nodes=2), None),
        (Request(gpus=1, nodes=3), "the backend `lab` has 2 such nodes"),
        (Request(gpus=1, nodes=4), "requests 4 nodes, but the backend `lab` has 3 nodes"),
        (Request(gpus=1, model="h200"), None),
        (Request(gpus=1, model="mi300"), "no node of the backend `lab` has such GPUs"),
        (Request(gpus=1, memory=80 << 30), None),
        (Request(gpus=1, memory=200 << 30), "with that much memory"),
        (Request(gpus=8, cpus=64), None),
        (Request(gpus=1, cpus=65), "requests 65 cores, but a node of the backend"),
    ],
)
def test_request_is_refused_only_if_no_node_can_ever_satisfy_it(
    request_: Request, part: str | None
) -> None:
    reason = impossible_reason(request_, _NODES, "lab")
    assert (reason is None) == (part is None), reason
    assert part is None or part in str(reason)


def test_nothing_is_refused_while_the_nodes_are_unknown() -> None:
    assert impossible_reason(Request(gpus=1000, nodes=50), (), "lab") is None


# -- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (SLURM, {"array": "0-3"}),
        (SLURM, {"gres": "gpu:1"}),
        (SLURM, {"--partition": "x"}),
        (SLURM, {"": "x"}),
        (SLURM, {"a b": "x"}),
        (SLURM, {"max-jobs": "0"}),
        (SLURM, {"max-jobs": "many"}),
        (RAY, {"partition": "gpu"}),
    ],
)
def test_options_that_a_backend_does_not_take_are_refused(
    kind: str, options: dict[str, str]
) -> None:
    with pytest.raises(UsageError):
        check_options(kind, options)


def test_options_are_those_of_sbatch_unless_stoker_has_them() -> None:
    options = {"partition": "gpu", "python": "/opt/python", "exclusive": "", "max-jobs": "5"}
    check_options(SLURM, options)
    own, sbatch = split_options(options)
    assert own == {"python": "/opt/python", "max-jobs": "5"}
    assert sbatch == {"partition": "gpu", "exclusive": ""}


@given(jobs=_jobs(), slots=st.integers(1, 20), most=st.floats(60, 1e5))
def test_no_allocation_is_longer_than_the_engine_allows(
    jobs: list[Candidate], slots: int, most: float
) -> None:
    by_id = {job.id: job for job in jobs}
    chunks = divide(jobs, slots, most_seconds=most)
    assert sorted(id for chunk in chunks for id in chunk.jobs) == list(by_id)
    for chunk in chunks:
        found = [by_id[id] for id in chunk.jobs]
        if (chunk.time_limit or 0.0) > most:
            assert chunk.is_single and (found[0].time_limit or 0.0) > most
        if not chunk.is_single:  # else the worker would return a job that never fits
            assert max(map(needed_seconds, found)) < most


# -- the lines of a chunk ------------------------------------------------------------------------

_REQUEST = Request(
    gpus=2, memory=3, exclusive=True, ids=("0",), prefer=("1",), model="h200", min_memory=4,
    is_auto=True, avoid=("2",), backend="lab", nodes=2, options=("a=b",), cpus=5, host_memory=6,
    is_auto_host=True, needs=("n=1",), share="time", preemptible=True, array=8, profile=9,
)  # fmt: skip
_READY = ReadyJob(
    id=1, priority=2, request=_REQUEST, time_limit=3.0, fair_share_group="g", since=4.0,
    argv=("a", "b"), shell=False, context=5, name="n", attempts=6, stdout="/o", stderr="/e",
    settings=JobSettings(
        grace=7.0, keep_children=True, retries=12, restartable=True, on_oom="alone",
        signal="USR1@9", warm="torch", no_bind=True, notify="done:desktop",
        activation=("conda=x",), others=(("nice", (1, 2)),),
    ),
    batch=8, batch_index=9, profile=10, request_group=11, variables=(("K", "V"),), sweep=13,
    requeues=14, preemptions=15, kept=(1,), snapshot="s", array_index=16, code=17,
)  # fmt: skip


def test_worker_gets_every_option_of_a_job() -> None:
    """A new option that this test does not know must be carried, or be one of the queue."""
    line = json.loads(json.dumps(to_line(chunk_job(_READY, 99, 1.5))))
    found = from_line(line)
    expected = _REQUEST._replace(backend="", options=())
    assert found.spec.request == expected
    own = {"on_oom": "fail", "retries": 0, "restartable": False, "notify": None}  # the queue's
    for name, value in _READY.settings.values().items():
        assert found.spec.settings.values()[name] == own.get(name, value), name
        assert value != DEFAULT_SETTINGS.values().get(name), f"give {name} a value"
    defaults = JobSpec(argv=(), context=found.spec.context)
    for name in JobSpec._fields:
        if name in OF_THE_QUEUE:
            assert getattr(found.spec, name) == getattr(defaults, name), name
        elif name not in ("request", "settings"):
            assert getattr(found.spec, name) == getattr(_READY, name), name
            assert getattr(found.spec, name) != getattr(defaults, name), f"give {name} a value"
    for name, value in Request()._asdict().items():
        assert getattr(_REQUEST, name) != value, f"give {name} a value"
    assert (found.job, found.attempt, found.number, found.context) == (1, 99, 7, 5)
    assert (found.batch, found.batch_index, found.estimate) == (8, 9, 1.5)
