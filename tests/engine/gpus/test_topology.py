"""Connections between GPUs, from the driver to the placement and the CPUs of a job."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from stoker.text.cpu_list import format_cpu_list, parse_cpu_list
from tests.engine.gpus.host import H200, GpuHost

CPUS = sorted(os.sched_getaffinity(0))
needs_two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="this host has one CPU")
READ_CPUS = "grep Cpus_allowed_list /proc/self/status; echo list=$STOKER_CPU_LIST"


@pytest.fixture
def host(new_host: Callable[..., GpuHost]) -> GpuHost:
    """Four GPUs: 0 and 2 connected by NVLink, 0 and 1 on NUMA node 0, the others on node 1."""
    host = new_host(H200, H200, H200, H200)
    for number, uuid in enumerate(host.uuids):
        host.fake.change(uuid, numa=number // 2, cpus=str(CPUS[number // 2 % len(CPUS)]))
    host.fake.connect(host.uuids[0], host.uuids[2])
    return host


def test_gpus_show_their_connections(host: GpuHost) -> None:
    lab = host.lab()
    seen = [(gpu["numa_node"], gpu["near_cpus"], gpu["nvlink"]) for gpu in lab.gpus()]
    first, second = str(CPUS[0]), str(CPUS[1 % len(CPUS)])
    assert seen == [
        (0, first, [host.uuids[2]]),
        (0, first, []),
        (1, second, [host.uuids[0]]),
        (1, second, []),
    ]
    lines = lab.ok("gpus", "-v").splitlines()
    assert "NUMA  NEAR CPUS  NVLINK" in lines[0]
    assert lines[1].split()[-5:-2] == ["0", first, "2"]
    assert "2 NUMA nodes" in lab.ok("doctor") and "2 connected by NVLink" in lab.ok("doctor")


def test_driver_without_topology_changes_nothing(new_host: Callable[..., GpuHost]) -> None:
    host = new_host(H200, H200)
    for call in ("nvmlDeviceGetP2PStatus", "nvmlDeviceGetMemoryAffinity"):
        host.fake.fail(call, 13)
    lab = host.lab()
    assert lab.wait(lab.submit("--gpus", "2", READ_CPUS)) == 0
    assert lab.log(1).splitlines() == [f"Cpus_allowed_list:\t{format_cpu_list(CPUS)}", "list="]
    assert [gpu["nvlink"] for gpu in lab.gpus()] == [[], []]


def test_job_gets_the_gpus_that_nvlink_connects(host: GpuHost) -> None:
    lab = host.lab()
    assert lab.wait(lab.submit("--gpus", "2", "true")) == 0
    assert lab.places(1) == [[0, 2]]


def test_single_gpu_job_leaves_connected_gpus_together(host: GpuHost) -> None:
    lab, gate = host.lab(), host.gate()
    first = lab.start(gate, "--gpus", "1")
    assert lab.places(first) == [[1]]
    gate.open()


@needs_two_cpus
def test_job_runs_on_the_cpus_near_its_gpus(host: GpuHost) -> None:
    lab = host.lab()
    near = lab.submit("--gpu-ids", "3", READ_CPUS)
    several = lab.submit("--gpu-ids", "0,3", READ_CPUS)
    free = lab.submit("--gpu-ids", "3", "--no-bind", READ_CPUS)
    without = lab.submit("--gpus", "0", READ_CPUS)
    for job in (near, several, free, without):
        assert lab.wait(job) == 0

    def cpus(job: int) -> tuple[str, str]:
        allowed, bound = lab.log(job).splitlines()
        return allowed.split()[1], bound

    everything = format_cpu_list(CPUS)
    assert cpus(near) == (str(CPUS[1]), f"list={CPUS[1]}")
    assert cpus(several) == (format_cpu_list(CPUS[:2]), f"list={format_cpu_list(CPUS[:2])}")
    assert cpus(free) == cpus(without) == (everything, "list=")


@needs_two_cpus
def test_setting_turns_binding_off(host: GpuHost) -> None:
    lab = host.lab(STOKER_BIND="0")
    assert lab.wait(lab.submit("--gpu-ids", "3", READ_CPUS)) == 0
    assert lab.log(1).splitlines()[0].split()[1] == format_cpu_list(CPUS)


@needs_two_cpus
def test_foreground_job_is_bound_and_its_parent_is_not(host: GpuHost) -> None:
    lab = host.lab()
    read = "grep Cpus_allowed_list /proc/self/status"
    jobs = lab.folder / "jobs.txt"
    jobs.write_text(f"{read} > near  #stoker --gpu-ids 3\n{read} > all  #stoker --gpus 0\n")
    lab.ok("run", "-j", "1", str(jobs), cwd=lab.folder)
    seen = [(lab.folder / name).read_text().split()[1] for name in ("near", "all")]
    assert seen == [str(CPUS[1]), format_cpu_list(CPUS)]


@needs_two_cpus
def test_cpus_that_the_runner_may_not_use_are_ignored(host: GpuHost) -> None:
    for uuid in host.uuids:
        host.fake.change(uuid, cpus="4000-4003")
    lab = host.lab()
    assert lab.wait(lab.submit("--gpus", "1", READ_CPUS)) == 0
    assert parse_cpu_list(lab.log(1).splitlines()[0].split()[1]) == set(CPUS)
