"""Properties of the policy that hold for every snapshot."""

from __future__ import annotations

from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from stoker.engine.model import Device, Plan, ReadyJob, RunningJob, Snapshot, WaitingJob
from stoker.engine.policy.decide import decide
from stoker.engine.policy.explain import Place, explain_ready
from tests.engine.scenario import a_device, a_running_job, a_waiting_job

NOW = 100.0
LIMITS = st.none() | st.integers(1, 60).map(float)


@st.composite
def hosts(draw: st.DrawFn) -> tuple[Device, ...]:
    slots = draw(st.lists(st.integers(1, 3), max_size=5))
    return tuple(a_device(number, count) for number, count in enumerate(slots))


@st.composite
def running_jobs(
    draw: st.DrawFn, devices: tuple[Device, ...], cpu_slots: int
) -> tuple[RunningJob, ...]:
    """Any load that the host can carry; some jobs are past their time limit."""
    free = {device.number: device.slots for device in devices}
    jobs = [a_running_job(id) for id in range(1, 1 + draw(st.integers(0, cpu_slots)))]
    for _ in range(draw(st.integers(0, 6))):
        usable = [number for number, slots in free.items() if slots]
        if not usable:
            break
        on = draw(st.lists(st.sampled_from(usable), min_size=1, unique=True))
        for number in on:
            free[number] -= 1
        ends_by = draw(st.none() | st.integers(90, 160).map(float))
        since = draw(st.integers(0, 99).map(float))
        jobs.append(a_running_job(len(jobs) + 1, tuple(sorted(on)), ends_by, since))
    return tuple(jobs)


@st.composite
def snapshots(draw: st.DrawFn, draining: bool | None = False) -> Snapshot:
    devices = draw(hosts())
    cpu_slots = draw(st.integers(0, 3))
    ids = draw(st.lists(st.integers(100, 200), unique=True, max_size=10))
    return Snapshot(
        NOW,
        devices,
        cpu_slots,
        draw(running_jobs(devices, cpu_slots)),
        tuple(
            a_waiting_job(id, draw(st.integers(0, 5)), draw(st.integers(-1, 1)), draw(LIMITS))
            for id in ids
        ),
        draw(st.booleans()) if draining is None else draining,
    )


def rank(job: WaitingJob | ReadyJob) -> tuple[int, int]:
    return (-job.priority, job.id)


def by_rank(snapshot: Snapshot) -> list[WaitingJob | ReadyJob]:
    return sorted(snapshot.waiting, key=rank)


def placed(plan: Plan) -> dict[int, tuple[int, ...]]:
    return {start.job: start.devices for start in plan.starts}


@given(snapshots(draining=None))
def test_no_device_is_over_committed(snapshot: Snapshot) -> None:
    free = {device.number: device.slots for device in snapshot.devices}
    for job in snapshot.running:
        for number in job.devices:
            free[number] -= 1
    for start in decide(snapshot).starts:
        for number in start.devices:
            free[number] -= 1
    assert all(slots >= 0 for slots in free.values())


@given(snapshots(draining=None))
def test_no_cpu_slot_is_over_committed(snapshot: Snapshot) -> None:
    started = sum(1 for start in decide(snapshot).starts if not start.devices)
    running = sum(1 for job in snapshot.running if not job.request.gpus)
    assert running + started <= snapshot.cpu_slots


@given(snapshots(draining=None))
def test_every_waiting_job_is_started_once_or_has_a_reason(snapshot: Snapshot) -> None:
    plan = decide(snapshot)
    started = [start.job for start in plan.starts]
    assert sorted([*started, *plan.waits]) == sorted(job.id for job in snapshot.waiting)


@given(snapshots())
def test_every_start_has_the_requested_number_of_different_devices(snapshot: Snapshot) -> None:
    requested = {job.id: job.request.gpus for job in snapshot.waiting}
    for start in decide(snapshot).starts:
        assert len(set(start.devices)) == len(start.devices) == requested[start.job]


@given(hosts(), st.integers(0, 5), st.integers(-1, 1), LIMITS)
def test_job_that_fits_an_idle_machine_starts(
    devices: tuple[Device, ...], gpus: int, priority: int, limit: float | None
) -> None:
    assume(gpus <= len(devices))
    job = a_waiting_job(1, gpus, priority, limit)
    assert placed(decide(Snapshot(NOW, devices, 1, (), (job,)))).keys() == {1}


@given(snapshots())
def test_idle_machine_starts_the_first_gpu_job_that_it_could_ever_run(snapshot: Snapshot) -> None:
    possible = [job for job in by_rank(snapshot) if 0 < job.request.gpus <= len(snapshot.devices)]
    assume(possible)
    assert possible[0].id in placed(decide(snapshot._replace(running=())))


@given(snapshots(draining=None), st.integers(0, 3))
def test_explain_has_reasons_exactly_when_decide_does_not_start(
    snapshot: Snapshot, ahead: int
) -> None:
    plan = decide(snapshot)
    started = placed(plan)
    for job in snapshot.waiting:
        reasons = explain_ready(job, snapshot, plan, Place(ahead))
        assert bool(reasons) == (job.id not in started)
        assert all(reason.strip() == reason != "" for reason in reasons)


@given(snapshots(draining=None), st.randoms(use_true_random=False))
def test_plan_does_not_depend_on_the_order_of_the_snapshot(
    snapshot: Snapshot, random: Random
) -> None:
    waiting, running = list(snapshot.waiting), list(snapshot.running)
    random.shuffle(waiting)
    random.shuffle(running)
    shuffled = snapshot._replace(waiting=tuple(waiting), running=tuple(running))
    assert decide(snapshot) == decide(snapshot) == decide(shuffled)


@given(snapshots())
def test_equal_requests_start_in_their_order(snapshot: Snapshot) -> None:
    plan = decide(snapshot)
    for job in snapshot.waiting:
        for other in snapshot.waiting:
            is_alike = (job.request.gpus, job.time_limit) == (other.request.gpus, other.time_limit)
            if is_alike and rank(job) < rank(other) and other.id in placed(plan):
                assert job.id in placed(plan)


@given(snapshots())
def test_reservation_is_for_the_first_job_that_only_lacks_devices(snapshot: Snapshot) -> None:
    plan = decide(snapshot)
    blocked = [
        job
        for job in by_rank(snapshot)
        if 0 < job.request.gpus <= len(snapshot.devices) and job.id in plan.waits
    ]
    assert (plan.reservation and plan.reservation.job) == (blocked[0].id if blocked else None)
    if plan.reservation is not None:
        assert len(set(plan.reservation.devices)) == blocked[0].request.gpus


@given(snapshots())
def test_no_later_job_holds_a_reserved_device_when_it_is_due(snapshot: Snapshot) -> None:
    plan = decide(snapshot)
    assume(plan.reservation is not None)
    assert plan.reservation is not None
    jobs = {job.id: job for job in snapshot.waiting}
    first = jobs[plan.reservation.job]
    starts = placed(plan)
    at = plan.reservation.at
    for number in plan.reservation.devices:
        slots = snapshot.devices[number].slots
        running = [job for job in snapshot.running if number in job.devices]
        earlier = [jobs[id] for id in starts if rank(jobs[id]) < rank(first)]
        later = [jobs[id] for id in starts if rank(jobs[id]) > rank(first)]
        before = len(running) + sum(number in starts[job.id] for job in earlier)
        # Those that are over by then leave their slots.
        over = [job.id for job in running if at is not None and job.ends_by and job.ends_by <= at]
        over += [
            job.id
            for job in earlier
            if number in starts[job.id] and at is not None and job.time_limit
            and NOW + job.time_limit <= at
        ]  # fmt: skip
        lasting = [
            job
            for job in later
            if number in starts[job.id]
            and (at is None or job.time_limit is None or NOW + job.time_limit > at)
        ]
        # Either a slot is free when it is due, or nothing was free and later jobs got nothing.
        assert before - len(over) + len(lasting) < slots or (before >= slots and not lasting)


@given(snapshots(draining=None))
def test_plan_without_reasons_has_the_same_starts(snapshot: Snapshot) -> None:
    assert decide(snapshot, with_reasons=False).starts == decide(snapshot).starts


# -- in time -----------------------------------------------------------------------------------


def starts_at(snapshot: Snapshot, id: int) -> float:
    """When a job starts if every job runs exactly as long as its limit."""
    limits = {job.id: job.time_limit or 0.0 for job in snapshot.waiting}
    while True:
        for start in decide(snapshot).starts:
            if start.job == id:
                return snapshot.now
            job = a_running_job(
                start.job, start.devices, snapshot.now + limits[start.job], snapshot.now
            )
            snapshot = snapshot._replace(
                running=(*snapshot.running, job),
                waiting=tuple(other for other in snapshot.waiting if other.id != start.job),
            )
        ends = [job.ends_by for job in snapshot.running if job.ends_by is not None]
        now = min(ends)
        left = tuple(job for job in snapshot.running if job.ends_by is None or job.ends_by > now)
        snapshot = snapshot._replace(now=max(now, snapshot.now), running=left)


@given(snapshots(), st.data())
def test_first_blocked_job_starts_no_later_than_without_the_jobs_behind_it(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    limit = st.integers(1, 60).map(float)
    running = tuple(
        job._replace(ends_by=NOW + data.draw(limit)) if job.ends_by is None else job
        for job in snapshot.running
    )
    waiting = tuple(job._replace(time_limit=data.draw(limit)) for job in snapshot.waiting)
    snapshot = snapshot._replace(running=running, waiting=waiting)
    reservation = decide(snapshot).reservation
    assume(reservation is not None)
    assert reservation is not None and reservation.at is not None
    first = next(job for job in waiting if job.id == reservation.job)
    alone = snapshot._replace(waiting=tuple(job for job in waiting if rank(job) <= rank(first)))
    assert starts_at(snapshot, first.id) <= starts_at(alone, first.id)
    assert starts_at(snapshot, first.id) <= reservation.at
