"""Properties of the policy with cores, memory and counters, for every snapshot."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.model import HostResources, Request, RunningJob, Snapshot, WaitingJob
from stoker.engine.policy.decide import decide, host_room_of, limit_waiting_jobs
from stoker.engine.policy.explain import Place, explain_ready
from stoker.engine.policy.host_share import claim_of_running, limits_of
from tests.engine.scenario import a_device

GIB = 1 << 30
RESOURCES = HostResources(cores=8, memory=32 * GIB, counters=(("licence", 2),))
REQUESTS = st.builds(
    lambda gpus, cpus, memory, auto, need: Request(
        gpus=gpus, cpus=cpus, host_memory=memory and memory * GIB, is_auto_host=auto,
        needs=(f"licence={need}",) if need else (),
    ),
    st.integers(0, 2), st.sampled_from((0, 0, 1, 2, 5, 8)), st.none() | st.integers(1, 32),
    st.booleans(), st.sampled_from((0, 0, 1, 2)),
)  # fmt: skip
LIMITS = st.none() | st.sampled_from((5.0, 60.0, 600.0))


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """A host in the state that its own decisions made."""
    devices = tuple(a_device(n, draw(st.integers(1, 2))) for n in range(draw(st.integers(0, 3))))
    requests = draw(st.lists(REQUESTS, min_size=1, max_size=4))
    waiting = tuple(
        WaitingJob(id, draw(st.integers(0, 1)), draw(st.sampled_from(requests)), draw(LIMITS),
                   since=-float(draw(st.integers(0, 100))), request_group=0,
                   kept=draw(st.sampled_from(((), (), (0,), (0, 1)))) if devices else ())
        for id in range(1, 1 + draw(st.integers(0, 14)))
    )  # fmt: skip
    snapshot = Snapshot(0.0, devices, draw(st.integers(0, 6)), (), waiting, resources=RESOURCES)
    for _ in range(draw(st.integers(0, 2))):
        snapshot = after(snapshot, float(draw(st.integers(0, 100))))
        ended = draw(st.sets(st.integers(1, 14)))
        kept = tuple(job for job in snapshot.running if job.id not in ended)
        snapshot = snapshot._replace(running=kept)
    return snapshot


def after(snapshot: Snapshot, seconds: float) -> Snapshot:
    """The snapshot after the starts of one decision."""
    jobs = {job.id: job for job in snapshot.waiting}
    running = list(snapshot.running)
    for start in decide(snapshot).starts:
        job = jobs.pop(start.job)
        ends_by = None if job.time_limit is None else snapshot.now + job.time_limit
        running.append(RunningJob(id=job.id, attempt=job.id, request=job.request,
                                  devices=start.devices, started=snapshot.now,
                                  ends_by=ends_by))  # fmt: skip
    return snapshot._replace(
        running=tuple(running), waiting=tuple(jobs.values()), now=snapshot.now + seconds
    )


@given(snapshots())
def test_claims_never_sum_to_more_than_the_host_has(snapshot: Snapshot) -> None:
    later = after(snapshot, 0.0)
    limits = limits_of(RESOURCES, snapshot.cpu_slots, snapshot.devices)
    sums = dict.fromkeys(limits.totals(), 0)
    for job in later.running:
        for name, amount in claim_of_running(job, limits).items():
            sums[name] += amount
    assert all(sums[name] <= total for name, total in limits.totals().items())
    assert host_room_of(later).free == {
        name: total - sums[name] for name, total in limits.totals().items()
    }


@given(snapshots())
def test_daemon_without_reasons_decides_the_same(snapshot: Snapshot) -> None:
    whole, fast = decide(snapshot), decide(snapshot, with_reasons=False)
    assert fast.starts == whole.starts
    assert fast.has_room == whole.has_room


@given(snapshots())
def test_plan_without_room_starts_nothing_more(snapshot: Snapshot) -> None:
    plan = decide(snapshot, with_reasons=False)
    if not plan.has_room:
        assert decide(after(snapshot, 0.0), with_reasons=False).starts == ()


@given(snapshots(), st.randoms(use_true_random=False))
def test_plan_is_deterministic_and_ignores_the_order_of_the_snapshot(
    snapshot: Snapshot, random: Random
) -> None:
    running, waiting = list(snapshot.running), list(snapshot.waiting)
    random.shuffle(running)
    random.shuffle(waiting)
    shuffled = snapshot._replace(running=tuple(running), waiting=tuple(waiting))
    assert decide(shuffled) == decide(snapshot)


@given(snapshots())
def test_every_job_starts_or_has_a_reason(snapshot: Snapshot) -> None:
    seen = limit_waiting_jobs(snapshot)
    plan = decide(seen)
    starts = {start.job for start in plan.starts}
    for job in snapshot.waiting:
        reasons = explain_ready(job, seen, plan, Place(0))
        assert bool(reasons) == (job.id not in starts)
        assert all(reason.strip() == reason != "" for reason in reasons)


@given(
    st.integers(2, 8), st.sampled_from((0, 1)), st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.sampled_from((None, 7.0, 40.0)),
)  # fmt: skip
def test_large_job_does_not_starve_behind_a_stream_of_small_ones(
    cpus: int, gpus: int, durations: list[int], limit: float | None
) -> None:
    """Small jobs arrive faster than they end, and the large one starts nevertheless."""
    now, next_id = 0.0, 1
    running: dict[int, tuple[float, RunningJob]] = {}
    large = WaitingJob(1, 0, Request(gpus, cpus=cpus), since=0.0, request_group=1)
    waiting: dict[int, WaitingJob] = {}
    for second in range(120):
        now = float(second)
        running = {id: one for id, one in running.items() if one[0] > now}
        for _ in range(8):
            next_id += 1
            waiting[next_id] = WaitingJob(
                next_id, 0, Request(0, cpus=1), limit, since=now, request_group=2
            )
        if second == 3:
            waiting[1] = large._replace(since=now)
        snapshot = Snapshot(
            now, (a_device(0),), 20, tuple(job for _, job in running.values()),
            tuple(waiting.values()), resources=HostResources(cores=8),
        )  # fmt: skip
        for start in decide(snapshot, with_reasons=False).starts:
            job = waiting.pop(start.job)
            if job.id == 1:
                return
            seconds = durations[job.id % len(durations)]
            ends_by = None if limit is None else now + limit
            new = RunningJob(id=job.id, attempt=job.id, request=job.request,
                             devices=start.devices, started=now, ends_by=ends_by)  # fmt: skip
            running[job.id] = (now + seconds, new)
    raise AssertionError("the large job never started")
