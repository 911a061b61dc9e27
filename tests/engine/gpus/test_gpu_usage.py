"""GPU memory, utilization and energy of a job are recorded."""

from __future__ import annotations

from tests.engine.gpus.host import GpuHost, GpuLab, allocate, hold_memory
from tests.fake_nvml import GIB


def test_memory_utilization_and_energy_of_an_attempt_are_recorded(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    for uuid in host.uuids:
        host.fake.change(uuid, util=50, power=400_000)
    gate = host.gate()
    job = gpu_lab.start(gate, "-M", "10G", size=7 * GIB)
    host.wait_for_sample()
    gate.open()
    assert gpu_lab.wait(job) == 0
    found = gpu_lab.job(job)
    assert found["gpu_memory_peak_bytes"] == 7 * GIB
    assert found["gpu_use_percent"] == 50
    assert 400 * 0.4 < found["gpu_energy_joules"] < 400 * 60
    shown = gpu_lab.ok("show", str(job))
    assert "GPU use     7.0 GiB peak memory, 50% utilization, " in shown


def test_peak_memory_is_kept_when_the_job_frees_memory(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate, small = host.gate(), host.gate("small")
    command = f"{hold_memory(gate, 30 * GIB)}; {allocate(2 * GIB)}; {small.wait}"
    job = gpu_lab.submit("-M", "40G", command)
    gate.wait_for()
    host.wait_for_sample()
    gate.open()
    small.wait_for()
    host.wait_for_sample()
    assert gpu_lab.gpu(0)["jobs"][0]["memory_bytes"] == 2 * GIB
    small.open()
    assert gpu_lab.wait(job) == 0
    assert gpu_lab.job(job)["gpu_memory_peak_bytes"] == 30 * GIB


def test_jobs_that_share_a_gpu_are_measured_separately(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate = host.gate()
    jobs = [gpu_lab.start(gate, "-M", "20G", "--gpu-ids", "0", size=size * GIB) for size in (3, 11)]
    host.wait_for_sample()
    shown = gpu_lab.gpu(0)["jobs"]
    assert [(one["id"], one["memory_bytes"]) for one in shown] == [
        (jobs[0], 3 * GIB),
        (jobs[1], 11 * GIB),
    ]
    shown = gpu_lab.ok("gpus")
    assert "(uses 3.0 GiB, reserved 20 GiB)" in shown
    gate.open()
    assert gpu_lab.wait(*jobs) == 0
    assert [gpu_lab.job(job)["gpu_memory_peak_bytes"] for job in jobs] == [3 * GIB, 11 * GIB]


def test_peak_memory_of_a_job_on_two_gpus_is_that_of_one_gpu(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    gate = host.gate()
    job = gpu_lab.start(gate, "--gpus", "2", size=9 * GIB)
    host.wait_for_sample()
    gate.open()
    assert gpu_lab.wait(job) == 0
    assert gpu_lab.job(job)["gpu_memory_peak_bytes"] == 9 * GIB


def test_cpu_job_has_no_recorded_gpu_use(gpu_lab: GpuLab) -> None:
    job = gpu_lab.submit("--gpus", "0", "true")
    assert gpu_lab.wait(job) == 0
    found = gpu_lab.job(job)
    keys = ("gpu_memory_peak_bytes", "gpu_use_percent", "gpu_energy_joules")
    assert [found[key] for key in keys] == [None, None, None]
    assert "GPU use" not in gpu_lab.ok("show", str(job))


def test_gpus_json_describes_a_gpu_and_its_jobs(host: GpuHost, gpu_lab: GpuLab) -> None:
    host.fake.change(host.uuids[0], temp=66, power=350_000, util=81)
    gate = host.gate()
    job = gpu_lab.start(gate, "-M", "10G", size=7 * GIB)
    assert gpu_lab.gpu(0) == {
        "index": 0,
        "uuid": host.uuids[0],
        "visible": "0",
        "model": "NVIDIA H200",
        "pci": "face:01:00.0",
        "slice_of": None,
        "numa_node": None,
        "near_cpus": "",
        "nvlink": [],
        "slots": 1,
        "share": "time",
        "mps": None,
        "state": "busy",
        "reserved_for": None,
        "simulated": False,
        "memory_bytes": 80 * GIB - 600 * (1 << 20),
        "memory_used_bytes": 7 * GIB,
        "utilisation_percent": 81,
        "power_watts": 350.0,
        "temperature_celsius": 66,
        "jobs": [{"id": job, "claim_bytes": 10 * GIB, "memory_bytes": 7 * GIB}],
        "other_processes": [],
        "holders": [],
    }
