"""What a job did with its cards is recorded."""

from __future__ import annotations

from tests.fake_nvml import GIB
from tests.gpus.host import GpuHost, GpuLab, on_card, tenant


def test_memory_utilization_and_energy_of_an_attempt_are_recorded(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    for card in host.cards:
        host.fake.change(card, util=50, power=400_000)
    gate = host.gate()
    job = gpu_lab.start(gate, "-M", "10G", size=7 * GIB)
    host.wait_for_look()
    gate.open()
    assert gpu_lab.wait(job) == 0
    facts = gpu_lab.job(job)
    assert facts["gpu_memory_peak_bytes"] == 7 * GIB
    assert facts["gpu_use_percent"] == 50
    assert 400 * 0.4 < facts["gpu_energy_joules"] < 400 * 60
    shown = gpu_lab.ok("show", str(job))
    assert "on the gpu  7.0 GB memory at most, 50% busy, " in shown


def test_peak_memory_is_kept_when_the_job_frees_memory(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate, small = host.gate(), host.gate("small")
    words = f"{tenant(gate, 30 * GIB)}; {on_card(2 * GIB)}; {small.wait}"
    job = gpu_lab.submit("-M", "40G", words)
    gate.wait_for()
    host.wait_for_look()
    gate.open()
    small.wait_for()
    host.wait_for_look()
    assert gpu_lab.gpu(0)["jobs"][0]["memory_bytes"] == 2 * GIB
    small.open()
    assert gpu_lab.wait(job) == 0
    assert gpu_lab.job(job)["gpu_memory_peak_bytes"] == 30 * GIB


def test_jobs_that_share_a_gpu_are_measured_separately(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate = host.gate()
    jobs = [gpu_lab.start(gate, "-M", "20G", "--gpu-ids", "0", size=size * GIB) for size in (3, 11)]
    host.wait_for_look()
    shown = gpu_lab.gpu(0)["jobs"]
    assert [(one["id"], one["memory_bytes"]) for one in shown] == [
        (jobs[0], 3 * GIB),
        (jobs[1], 11 * GIB),
    ]
    words = gpu_lab.ok("gpus")
    assert "(has 3.0 GB, was promised 20 GB)" in words
    gate.open()
    assert gpu_lab.wait(*jobs) == 0
    assert [gpu_lab.job(job)["gpu_memory_peak_bytes"] for job in jobs] == [3 * GIB, 11 * GIB]


def test_peak_memory_of_a_job_on_two_gpus_is_that_of_one_gpu(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    gate = host.gate()
    job = gpu_lab.start(gate, "--gpus", "2", size=9 * GIB)
    host.wait_for_look()
    gate.open()
    assert gpu_lab.wait(job) == 0
    assert gpu_lab.job(job)["gpu_memory_peak_bytes"] == 9 * GIB


def test_cpu_job_has_no_recorded_gpu_use(gpu_lab: GpuLab) -> None:
    job = gpu_lab.submit("--gpus", "0", "true")
    assert gpu_lab.wait(job) == 0
    facts = gpu_lab.job(job)
    keys = ("gpu_memory_peak_bytes", "gpu_use_percent", "gpu_energy_joules")
    assert [facts[key] for key in keys] == [None, None, None]
    assert "on the gpu" not in gpu_lab.ok("show", str(job))


def test_gpus_json_describes_a_gpu_and_its_jobs(host: GpuHost, gpu_lab: GpuLab) -> None:
    host.fake.change(host.cards[0], temp=66, power=350_000, util=81)
    gate = host.gate()
    job = gpu_lab.start(gate, "-M", "10G", size=7 * GIB)
    assert gpu_lab.gpu(0) == {
        "index": 0,
        "uuid": host.cards[0],
        "visible": "0",
        "model": "NVIDIA H200",
        "pci": "face:01:00.0",
        "slice_of": None,
        "slots": 1,
        "state": "busy",
        "memory_bytes": 80 * GIB - 600 * (1 << 20),
        "memory_used_bytes": 7 * GIB,
        "utilisation_percent": 81,
        "power_watts": 350.0,
        "temperature_celsius": 66,
        "jobs": [{"id": job, "claim_bytes": 10 * GIB, "memory_bytes": 7 * GIB}],
        "strangers": [],
        "holders": [],
    }
