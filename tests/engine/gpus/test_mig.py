"""MIG slices of a GPU are separate devices."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.gpus.host import H200, GpuHost, GpuLab, hold_memory
from tests.fake_nvml import GIB

SLICE = "NVIDIA H200 MIG 1g.18gb"


@pytest.fixture
def sliced(new_host: Callable[..., GpuHost]) -> GpuHost:
    """A host with GPU 0 undivided and GPU 1 divided into two slices of 10 GiB."""
    host = new_host(H200, H200)
    host.uuids += host.fake.slices(host.uuids[1], SLICE, SLICE)
    return host


@pytest.fixture
def lab(sliced: GpuHost) -> GpuLab:
    return sliced.lab()


def test_slices_replace_their_gpu(sliced: GpuHost, lab: GpuLab) -> None:
    shown = lab.gpus()
    assert [(gpu["index"], gpu["visible"]) for gpu in shown] == [
        (0, "0"),
        (2, sliced.uuids[2]),
        (3, sliced.uuids[3]),
    ]
    assert [gpu["slice_of"] for gpu in shown] == [None, sliced.uuids[1], sliced.uuids[1]]
    assert sliced.uuids[2] in lab.ok("gpus")


def test_job_sees_its_slice_by_uuid(sliced: GpuHost, lab: GpuLab) -> None:
    job = lab.submit("--gpu-model", "MIG", "echo $CUDA_VISIBLE_DEVICES")
    assert lab.wait(job) == 0
    assert lab.log(job) == f"{sliced.uuids[2]}\n"
    assert lab.job(job)["devices"] == [{"index": 2, "uuid": sliced.uuids[2]}]


def test_slice_can_be_requested_by_its_uuid(sliced: GpuHost, lab: GpuLab) -> None:
    job = lab.submit("--gpu-ids", sliced.uuids[3], "echo $CUDA_VISIBLE_DEVICES")
    assert lab.wait(job) == 0
    assert lab.log(job) == f"{sliced.uuids[3]}\n"


def test_slices_of_one_gpu_run_different_jobs(sliced: GpuHost, lab: GpuLab) -> None:
    gate = sliced.gate()
    jobs = [lab.start(gate, "--gpu-model", "MIG", size=5 * GIB) for _ in range(2)]
    assert lab.places(*jobs) == [[2], [3]]
    waits = lab.submit("--gpu-model", "MIG", "true")
    assert lab.wait(lab.submit("--gpu-ids", "0", "true")) == 0
    assert lab.state(waits) == "queued"
    assert [gpu["memory_used_bytes"] for gpu in lab.gpus()] == [0, 5 * GIB, 5 * GIB]
    gate.open()
    assert lab.wait(*jobs, waits) == 0


def test_slice_is_shared_by_memory(sliced: GpuHost, lab: GpuLab) -> None:
    gate = sliced.gate()
    jobs = [lab.start(gate, "-M", "4G", "--gpu-ids", "2") for _ in range(2)]
    waits = lab.submit("-M", "4G", "--gpu-ids", "2", "true")
    assert lab.wait(lab.submit("-M", "4G", "--gpu-ids", "3", "true")) == 0
    assert lab.state(waits) == "queued"
    gate.open()
    assert lab.wait(*jobs, waits) == 0


def test_two_queues_respect_each_other_s_slices(sliced: GpuHost) -> None:
    first, second = sliced.lab(), sliced.lab()
    gate = sliced.gate()
    first.start(gate, "--gpu-ids", sliced.uuids[2])
    job = second.submit("--gpu-model", "MIG", "true")
    assert second.wait(job) == 0
    assert second.places(job) == [[3]]


def test_job_that_requests_more_memory_than_a_slice_has_is_refused(lab: GpuLab) -> None:
    done = lab.run("submit", "--gpu-model", "MIG", "--gpu-mem", "20G", "true")
    assert done.returncode == 65
    assert (
        "20 GiB of shareable memory and `MIG` in the model name, but no such GPU is on this host"
        in done.stderr
    )


def test_xid_of_a_slice_closes_only_that_slice(sliced: GpuHost, lab: GpuLab) -> None:
    lab.stay_awake(sliced.gate())
    sliced.fake.xid(sliced.uuids[1], 79, instance=7)
    lab.wait_until(lambda: "Xid 79" in lab.gpu(2)["state"])
    assert [gpu["state"] for gpu in lab.gpus() if gpu["index"] != 2] == ["free", "free"]


def test_memory_of_a_job_on_a_slice_is_recorded(sliced: GpuHost, lab: GpuLab) -> None:
    gate = sliced.gate()
    job = lab.submit("--gpu-ids", "3", hold_memory(gate, 6 * GIB))
    gate.wait_for()
    sliced.wait_for_sample()
    gate.open()
    assert lab.wait(job) == 0
    assert lab.job(job)["gpu_memory_peak_bytes"] == 6 * GIB
