"""A GPU serves jobs under MPS or jobs without it, never both."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.model import MPS, DeviceState, Request, RunningJob, Snapshot, Start, WaitingJob
from stoker.engine.policy.decide import decide
from stoker.engine.policy.explain import reasons_of
from stoker.engine.policy.forecast import forecast
from stoker.engine.policy.share_mode import parse_share, share_of_start
from tests.engine.scenario import a_device

GIB = 1 << 30
REQUESTS = st.builds(
    lambda gpus, share, memory, exclusive: Request(
        gpus=gpus, share=share if gpus == 1 and not exclusive else "",
        memory=None if exclusive or memory is None else memory * GIB, exclusive=exclusive,
    ),
    st.integers(0, 2), st.sampled_from(("", "mps", "mps:50", "time")),
    st.none() | st.integers(1, 40), st.sampled_from((False, False, True)),
)  # fmt: skip
STATES = st.builds(
    lambda problem, other, starts: DeviceState(
        mps_problem=problem, other_user=other, mps_starts=starts
    ),
    st.sampled_from((None, None, "missing")),
    st.sampled_from((None, None, "ada")),
    st.sampled_from((False, False, True)),
)
LIMITS = st.none() | st.sampled_from((5.0, 60.0, 600.0))


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    devices = tuple(
        a_device(number, draw(st.integers(1, 3)))._replace(
            memory=80 * GIB, pci=f"0000:0{number}:00.0", uuid=f"GPU-{number}",
            share=draw(st.sampled_from(("", "mps", "time"))),
        )
        for number in range(draw(st.integers(1, 3)))
    )  # fmt: skip
    waiting = tuple(
        WaitingJob(id, 0, draw(REQUESTS), draw(LIMITS), since=-float(id))
        for id in range(1, 1 + draw(st.integers(0, 14)))
    )
    states = {device.number: draw(STATES) for device in devices}
    snapshot = Snapshot(0.0, devices, 4, (), waiting, states=states)
    for _ in range(draw(st.integers(0, 3))):
        snapshot = after(snapshot)
        ended = draw(st.sets(st.integers(1, 14)))
        kept = tuple(job for job in snapshot.running if job.id not in ended)
        states = {device.number: draw(STATES) for device in devices}
        snapshot = snapshot._replace(running=kept, states=states)
    return snapshot


def started(snapshot: Snapshot, start: Start) -> RunningJob:
    job = next(job for job in snapshot.waiting if job.id == start.job)
    share = share_of_start(job.request, start.devices, snapshot.devices, snapshot.states or {})
    ends_by = None if job.time_limit is None else snapshot.now + job.time_limit
    return RunningJob(id=job.id, attempt=job.id, request=job.request, devices=start.devices,
                      started=snapshot.now, ends_by=ends_by, share=share)  # fmt: skip


def after(snapshot: Snapshot) -> Snapshot:
    """The snapshot after the starts of one decision, a minute later."""
    starts = decide(snapshot).starts
    running = (*snapshot.running, *(started(snapshot, start) for start in starts))
    ids = {start.job for start in starts}
    waiting = tuple(job for job in snapshot.waiting if job.id not in ids)
    return snapshot._replace(running=running, waiting=waiting, now=snapshot.now + 60)


@given(snapshots())
def test_gpu_never_serves_both_modes(snapshot: Snapshot) -> None:
    for device in snapshot.devices:
        jobs = [job for job in after(snapshot).running if device.number in job.devices]
        assert len({job.share for job in jobs}) <= 1
        if any(job.request.exclusive for job in jobs):
            assert len(jobs) == 1


@given(snapshots())
def test_mps_job_starts_only_where_mps_works_for_it(snapshot: Snapshot) -> None:
    states = snapshot.states or {}
    before = {job.id for job in snapshot.running}
    for job in after(snapshot).running:
        if job.share == MPS and job.id not in before:
            state = states[job.devices[0]]
            assert (state.mps_problem, state.other_user, state.mps_starts) == (None, None, False)
            assert job.request.gpus == 1 and not job.request.exclusive


@given(snapshots())
def test_waiting_job_has_a_reason(snapshot: Snapshot) -> None:
    plan = decide(snapshot)
    ids = {start.job for start in plan.starts}
    for job in snapshot.waiting:
        if job.id not in ids:
            assert reasons_of(job, snapshot, plan)[0]
    forecast(snapshot)


@given(snapshots())
def test_job_with_mps_starts_on_an_idle_host_where_mps_works(snapshot: Snapshot) -> None:
    """No state of MPS keeps a job from an idle GPU for good."""
    job = WaitingJob(99, 0, Request(gpus=1, share="mps"))
    states = {device.number: DeviceState() for device in snapshot.devices}
    idle = snapshot._replace(running=(), waiting=(job,), states=states)
    assert len(decide(idle).starts) == 1
    broken = {number: DeviceState(mps_problem="missing") for number in states}
    (start,) = decide(idle._replace(states=broken)).starts
    assert share_of_start(job.request, start.devices, idle.devices, broken) == ""


def test_stream_of_jobs_of_one_mode_does_not_starve_a_job_of_the_other() -> None:
    device = a_device(0)._replace(memory=80 * GIB, pci="0000:01:00.0", uuid="GPU-0")
    small = Request(gpus=1, share="mps", memory=GIB)
    running = (RunningJob(1, 1, small, (0,), 0.0, ends_by=100.0, share=MPS),)
    plain = WaitingJob(2, 1, Request(gpus=1, memory=GIB))
    stream = tuple(WaitingJob(id, 0, small, 500.0) for id in range(3, 9))
    short = WaitingJob(9, 0, small, 50.0)
    plan = decide(Snapshot(0.0, (device,), 4, running, (plain, *stream, short)))
    assert plan.reservation is not None
    assert (plan.reservation.job, plan.reservation.at) == (2, 100.0)
    assert [start.job for start in plan.starts] == [9]  # it ends before the reservation is due


@pytest.mark.parametrize("text", ["", "cuda", "mps:", "mps:0", "mps:101", "mps:x", "time:5"])
def test_other_texts_are_not_ways_to_share(text: str) -> None:
    with pytest.raises(ValueError):
        parse_share(text)
