"""Reasons, places and forecasts agree with the decisions of the daemon."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.model import (
    UNCOUNTED,
    Device,
    DeviceState,
    HostResources,
    Request,
    RunningJob,
    Snapshot,
    WaitingJob,
)
from stoker.engine.policy.decide import decide, limit_waiting_jobs
from stoker.engine.policy.explain import Place, explain_ready, places
from stoker.engine.policy.forecast import forecast
from stoker.engine.profiles.estimates import Estimate, Estimates
from tests.engine.scenario import a_device

NOW = 1000.0
GIB = 1 << 30
REQUESTS = (
    Request(0), Request(1), Request(2), Request(4), Request(1, 20 * GIB), Request(2, 50 * GIB),
    Request(1, exclusive=True), Request(1, ids=("1",)), Request(1, model="a100"),
    Request(1, min_memory=100 * GIB), Request(0, cpus=2), Request(1, cpus=3),
    Request(0, host_memory=5 * GIB), Request(1, is_auto_host=True),
    Request(0, needs=("licence=1",)),
)  # fmt: skip
RESOURCES = HostResources(cores=4, memory=8 * GIB, counters=(("licence", 1),))
STATES = st.sampled_from((
    None,
    DeviceState(closed_reason="drained"),
    DeviceState(closed_reason="clearing", closes_briefly=True),
    DeviceState(closed_reason="leased to another process"),
    DeviceState(40 * GIB, True, None, "user2"),
))  # fmt: skip
LIMITS = st.sampled_from((None, None, 5.0, 60.0, 600.0))
ESTIMATES = st.builds(Estimate, st.sampled_from((1.0, 30.0, 900.0)),
                      st.sampled_from((0.0, 0.3, 2.0)), st.sampled_from((1, 5, 100)))  # fmt: skip


@st.composite
def devices_of(draw: st.DrawFn) -> tuple[Device, ...]:
    count = draw(st.integers(1, 4))
    if draw(st.booleans()):
        return tuple(a_device(number, draw(st.integers(1, 2))) for number in range(count))
    return tuple(
        Device(number, str(number), 1, draw(st.sampled_from(("H200", "NVIDIA A100"))),
               f"GPU-{number:08d}", draw(st.sampled_from((80, 141))) * GIB)
        for number in range(count)
    )  # fmt: skip


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """A host in use by its own past decisions, with everything that can keep a job waiting."""
    devices = draw(devices_of())
    states = {d.number: state for d in devices if (state := draw(STATES)) is not None}
    profiles = {n: estimate for n in (1, 2, 3) if (estimate := draw(st.none() | ESTIMATES))}
    waiting = []
    # Few kinds of requests make long groups, of which the daemon does not look at the end.
    kinds = draw(st.lists(st.integers(0, len(REQUESTS) - 1), min_size=1, max_size=6))
    for id in range(1, 1 + draw(st.integers(0, 25))):
        kind = draw(st.sampled_from(kinds))
        fair_share_group = draw(st.sampled_from(("", "", "sweep:a", "sweep:b")))
        waiting.append(WaitingJob(
            id, draw(st.sampled_from((0, 0, 0, 5))), REQUESTS[kind], draw(LIMITS), fair_share_group,
            NOW - draw(st.integers(0, 2000)), draw(st.integers(0, 3)),
            1 + kind + 100 * ("", "sweep:a", "sweep:b").index(fair_share_group),
        ))  # fmt: skip
    waiting.sort(key=lambda job: (job.request_group, -job.priority, job.id))
    snapshot = Snapshot(
        NOW, devices, draw(st.integers(0, 2)), (), tuple(waiting), draw(st.integers(0, 9)) == 0,
        states, limits=draw(st.sampled_from(({}, {"sweep:a": 1}))),
        estimates=Estimates(profiles, draw(st.sampled_from((0.0, 100.0)))),
        resources=draw(st.sampled_from((UNCOUNTED, RESOURCES, RESOURCES))),
    )  # fmt: skip
    for _ in range(draw(st.integers(0, 2))):
        snapshot = after(snapshot, draw(st.integers(0, 100)))
    return snapshot


def after(snapshot: Snapshot, seconds: float) -> Snapshot:
    """The starts of one decision are made, and time passes."""
    jobs = {job.id: job for job in snapshot.waiting}
    running = list(snapshot.running)
    for start in decide(limit_waiting_jobs(snapshot)).starts:
        job = jobs.pop(start.job)
        ends_by = None if job.time_limit is None else snapshot.now + job.time_limit
        running.append(RunningJob(
            job.id, job.id, job.request, start.devices, snapshot.now, ends_by, job.fair_share_group,
            job.profile,
        ))  # fmt: skip
    return snapshot._replace(
        running=tuple(running), waiting=tuple(jobs.values()), now=snapshot.now + seconds
    )


def starts_now(snapshot: Snapshot) -> set[int]:
    """Return the jobs that the daemon starts in one tick: it decides until no more start."""
    found: set[int] = set()
    while starts := decide(limit_waiting_jobs(snapshot), with_reasons=False).starts:
        found |= {start.job for start in starts}
        snapshot = after(snapshot, 0.0)
    return found


@given(snapshots())
def test_job_without_a_reason_is_exactly_one_that_the_daemon_starts(snapshot: Snapshot) -> None:
    seen = limit_waiting_jobs(snapshot)
    plan = decide(seen)
    order = places(snapshot)
    assert order.keys() == {job.id for job in snapshot.waiting}
    assert sorted(place.ahead for place in order.values()) == list(range(len(order)))
    started = {start.job for start in plan.starts}
    for job in snapshot.waiting:
        reasons = explain_ready(job, seen, plan, order[job.id])
        assert bool(reasons) == (job.id not in started)
        assert all(reason.strip() == reason != "" for reason in reasons)


@given(snapshots())
def test_forecast_of_now_is_exactly_what_the_daemon_starts(snapshot: Snapshot) -> None:
    found = forecast(snapshot)
    assert {job for job, seconds in found.items() if seconds == 0} == starts_now(snapshot)
    assert all(seconds == 0 or seconds >= 1 for seconds in found.values())


@given(snapshots())
def test_forecast_with_hidden_jobs_agrees_with_the_full_one(snapshot: Snapshot) -> None:
    """What lies behind the jobs that were read can only take promises away."""
    whole = forecast(snapshot)
    groups = {job.request_group for job in snapshot.waiting}
    for group in groups:
        found = forecast(snapshot, {group})
        assert found.items() <= whole.items()


@given(snapshots())
def test_jobs_of_one_request_group_are_forecast_in_their_order(snapshot: Snapshot) -> None:
    plain = snapshot._replace(
        estimates=Estimates({}),
        waiting=tuple(job._replace(time_limit=60.0, since=0.0) for job in snapshot.waiting),
    )
    found = forecast(plain)
    order = places(plain)
    for job in plain.waiting:
        for other in plain.waiting:
            if (
                job.request_group == other.request_group
                and order[job.id].ahead < order[other.id].ahead
            ):
                assert other.id not in found or found[job.id] <= found[other.id]


@given(snapshots())
def test_forecast_starts_the_job_with_the_reservation_before_others_of_its_request(
    snapshot: Snapshot,
) -> None:
    steady = snapshot._replace(estimates=Estimates({}))
    reservation = decide(limit_waiting_jobs(steady)).reservation
    if reservation is None:
        return
    found = forecast(steady)
    first = next(job for job in steady.waiting if job.id == reservation.job)
    for job in steady.waiting:
        if (
            job.request == first.request
            and job.fair_share_group == first.fair_share_group == ""
            and job.id in found
        ):
            is_later = places(steady)[job.id].ahead > places(steady)[first.id].ahead
            is_longer = (job.time_limit or 1e9) >= (first.time_limit or 1e9)
            if is_later and is_longer and found[job.id] > 0:
                assert first.id in found and found[first.id] <= found[job.id]


def test_place_is_marked_if_it_is_a_lower_bound() -> None:
    assert str(Place(1)) == "1 job in front of it"
    assert str(Place(3, is_exact=False)) == "at least 3 jobs in front of it"


@given(st.integers(2, 40), st.integers(1, 3), st.booleans())
def test_job_that_the_daemon_does_not_consider_yet_has_a_reason(
    count: int, gpus: int, is_wide: bool
) -> None:
    """It does not start, and is not forecast to start, before the jobs in front of it."""
    request = Request(2 if is_wide else 1)
    waiting = tuple(
        WaitingJob(id, 0, request, since=NOW, request_group=1) for id in range(1, count + 1)
    )
    snapshot = Snapshot(NOW, tuple(a_device(n) for n in range(gpus)), 1, (), waiting)
    seen = limit_waiting_jobs(snapshot)
    plan = decide(seen)
    started = {start.job for start in plan.starts}
    for job, place in zip(waiting, places(snapshot).values(), strict=True):
        reasons = explain_ready(job, seen, plan, place)
        assert bool(reasons) == (job.id not in started)
        if reasons and not started.isdisjoint({1}):
            assert reasons[-1] == str(place)
