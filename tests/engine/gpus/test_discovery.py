"""GPUs are discovered, numbered and given to jobs."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.engine.gpus.host import A100, H200, GpuHost, GpuLab
from tests.fake_nvml import GIB, NOT_SUPPORTED


def test_gpus_of_the_host_are_shown(new_host: Callable[..., GpuHost]) -> None:
    host = new_host(H200, A100)
    host.fake.change(host.uuids[1], used=3 * GIB, util=40, temp=61, power=312_000)
    shown = host.lab().ok("gpus").splitlines()
    assert [re.sub("  +", "|", line) for line in shown] == [
        "GPU|MODEL|MEMORY|UTIL|TEMP|STATE|USED BY",
        "0|NVIDIA H200|0.0/79 GiB|0%|30 C 70 W|free|-",
        f"1|{A100}|3.0/79 GiB|40%|61 C 312 W|taken|other process: a hidden process has 3.0 GiB",
    ]


def test_job_gets_one_gpu_by_default(gpu_lab: GpuLab) -> None:
    jobs = [gpu_lab.submit(*options, "true") for options in ((), ("--gpus", "0"), ("-G", "2"))]
    assert [gpu_lab.job(job)["gpus"] for job in jobs] == [1, 0, 2]


def test_job_sees_its_gpu_by_index_in_pci_bus_order(host: GpuHost, gpu_lab: GpuLab) -> None:
    host.fake.reverse()
    job = gpu_lab.submit(
        "--gpu-ids", "1", "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $STOKER_GPU_UUIDS"
    )
    assert gpu_lab.wait(job) == 0
    assert gpu_lab.log(job).split() == ["1", "PCI_BUS_ID", host.uuids[1]]
    assert gpu_lab.job(job)["devices"] == [{"index": 1, "uuid": host.uuids[1]}]


def test_job_sees_its_gpus_by_uuid_if_configured(host: GpuHost) -> None:
    lab = host.lab(STOKER_GPUS_BY_UUID="1")
    job = lab.submit("--gpus", "2", "echo $CUDA_VISIBLE_DEVICES")
    assert lab.wait(job) == 0
    assert lab.log(job).strip() == ",".join(host.uuids)
    assert [gpu["visible"] for gpu in lab.gpus()] == host.uuids


def test_job_without_gpus_sees_none(gpu_lab: GpuLab) -> None:
    job = gpu_lab.submit("--gpus", "0", "echo [$CUDA_VISIBLE_DEVICES] $NVIDIA_VISIBLE_DEVICES")
    assert gpu_lab.wait(job) == 0
    assert gpu_lab.log(job).split() == ["[]", "void"]


def test_old_driver_that_counts_reserved_memory_as_used_is_supported(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    host.fake.fail("nvmlDeviceGetMemoryInfo_v2", NOT_SUPPORTED)
    assert [gpu["memory_bytes"] for gpu in gpu_lab.gpus()] == [80 * GIB, 80 * GIB]
    job = gpu_lab.submit("-M", "70G", "true")
    assert gpu_lab.wait(job) == 0


def test_gpus_without_memory_information_are_shared_by_slots(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    host.fake.fail("nvmlDeviceGetMemoryInfo_v2", NOT_SUPPORTED)
    host.fake.fail("nvmlDeviceGetMemoryInfo", NOT_SUPPORTED)
    gate = host.gate()
    gpu_lab.ok("gpus", "slots", "2", "all")
    jobs = [gpu_lab.start(gate) for _ in range(4)]
    assert sorted(gpu_lab.places(*jobs)) == [[0], [0], [1], [1]]
    gate.open()
    assert gpu_lab.wait(*jobs) == 0


def test_host_with_a_driver_and_no_gpu_runs_cpu_jobs(new_host: Callable[..., GpuHost]) -> None:
    lab = new_host().lab()
    assert lab.ok("gpus") == "no GPUs found\n"
    job = lab.submit("echo no GPU needed")
    assert lab.wait(job) == 0
    assert lab.job(job)["gpus"] == 0


def test_simulated_gpus_hide_the_real_ones(host: GpuHost) -> None:
    lab = host.lab(STOKER_DEVICES="3")
    assert [gpu["model"] for gpu in lab.gpus()] == ["simulated"] * 3
    job = lab.submit("--gpus", "3", "echo $CUDA_VISIBLE_DEVICES")
    assert lab.wait(job) == 0
    assert lab.log(job) == "0,1,2\n"
    assert host.fake.loads() == 0
