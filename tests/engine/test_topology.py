"""Jobs get GPUs that are connected with each other."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.model import Device, Request, RunningJob, Snapshot, WaitingJob
from stoker.engine.policy.decide import decide
from stoker.engine.policy.topology import Topology, topology_of

GIB = 1 << 30


def a_host(numa: Iterable[int | None], links: Iterable[tuple[int, int]] = ()) -> tuple[Device, ...]:
    """A host with a GPU for each NUMA node given; `links`: pairs connected by NVLink."""
    pairs = list(links)
    return tuple(
        Device(
            number=number,
            visible=str(number),
            uuid=f"GPU-{number}",
            memory=80 * GIB,
            numa=node,
            links=tuple(f"GPU-{b if a == number else a}" for a, b in pairs if number in (a, b)),
        )
        for number, node in enumerate(numa)
    )


def clique(*numbers: int) -> list[tuple[int, int]]:
    return list(combinations(numbers, 2))


def placed(
    devices: tuple[Device, ...], request: Request, busy: Iterable[int] = ()
) -> tuple[int, ...]:
    running = tuple(RunningJob(9 + n, 9 + n, Request(gpus=1), (n,), 0.0) for n in busy)
    plan = decide(Snapshot(1.0, devices, 0, running, (WaitingJob(1, 0, request),)))
    return plan.starts[0].devices if plan.starts else ()


def test_job_gets_gpus_that_nvlink_connects() -> None:
    devices = a_host([0] * 4, [(0, 2), (1, 3)])
    assert placed(devices, Request(gpus=2)) == (0, 2)
    assert placed(devices, Request(gpus=2), busy=[0]) == (1, 3)


def test_job_gets_gpus_of_one_numa_node_if_no_link_is_free() -> None:
    devices = a_host([0, 1, 0, 1], [(0, 1)])
    assert placed(devices, Request(gpus=2)) == (0, 1)
    assert placed(devices, Request(gpus=2), busy=[0]) == (1, 3)


def test_job_gets_gpus_in_list_order_if_all_are_connected_alike() -> None:
    assert placed(a_host([0] * 8, clique(*range(8))), Request(gpus=4)) == (0, 1, 2, 3)
    assert placed(a_host([None] * 4), Request(gpus=2)) == (0, 1)


def test_job_starts_on_unconnected_gpus_rather_than_later() -> None:
    devices = a_host([0, 0, 1, 1], [(0, 1), (2, 3)])
    assert placed(devices, Request(gpus=2), busy=[0, 2]) == (1, 3)


def test_single_gpu_job_does_not_break_up_a_free_pair() -> None:
    devices = a_host([0, 0, 1, 1], [(0, 1), (2, 3)])
    assert placed(devices, Request(gpus=1), busy=[2]) == (3,)


def test_single_gpu_job_prefers_the_numa_node_with_fewer_idle_gpus() -> None:
    assert placed(a_host([0, 0, 0, 1, 1, 1]), Request(gpus=1), busy=[4]) == (3,)


def test_preferred_gpus_come_before_connected_ones() -> None:
    devices = a_host([0] * 4, [(0, 1), (2, 3)])
    assert placed(devices, Request(gpus=2, prefer=("1", "2"))) == (1, 2)


def test_job_shares_a_gpu_only_if_none_is_idle_even_if_it_is_connected() -> None:
    devices = a_host([0, 0, 1], [(0, 1)])
    running = (RunningJob(9, 9, Request(gpus=1, memory=10 * GIB), (0,), 0.0),)
    job = WaitingJob(1, 0, Request(gpus=2, memory=10 * GIB))
    plan = decide(Snapshot(1.0, devices, 0, running, (job,)))
    assert plan.starts[0].devices == (1, 2)


def test_no_topology_is_kept_for_a_host_without_connections() -> None:
    assert topology_of(a_host([0] * 4)) is None
    assert topology_of(a_host([None] * 4)) is None


@st.composite
def hosts(draw: st.DrawFn) -> tuple[Device, ...]:
    numa = draw(st.lists(st.none() | st.integers(0, 3), min_size=1, max_size=14))
    pairs = list(combinations(range(len(numa)), 2))
    return a_host(numa, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else ())


@given(hosts(), st.integers(1, 14), st.data())
def test_every_choice_is_valid_and_connected_no_worse_than_list_order(
    devices: tuple[Device, ...], gpus: int, data: st.DataObject
) -> None:
    numbers = [device.number for device in devices]
    busy = data.draw(st.lists(st.sampled_from(numbers), unique=True))
    chosen = placed(devices, Request(gpus=gpus), busy)
    idle = [number for number in numbers if number not in busy]
    if len(idle) < gpus:
        assert chosen == ()
        return
    assert len(set(chosen)) == gpus and set(chosen) <= set(idle)
    topology = Topology(devices)
    assert topology.connections(chosen) >= topology.connections(idle[:gpus])


@given(hosts(), st.integers(1, 5))
def test_choice_among_few_gpus_is_the_best_connected_one(
    devices: tuple[Device, ...], gpus: int
) -> None:
    numbers = [device.number for device in devices][:6]
    devices = devices[:6]
    if len(numbers) < gpus:
        return
    topology = Topology(devices)
    best = max(topology.connections(some) for some in combinations(numbers, gpus))
    assert topology.connections(placed(devices, Request(gpus=gpus))) == best
