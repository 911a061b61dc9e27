"""GPUs are shared by memory and never overcommitted."""

from __future__ import annotations

from collections import Counter

from tests.engine.gpus.host import GpuHost, GpuLab, hold_memory
from tests.fake_nvml import GIB


def test_jobs_share_a_gpu_until_its_memory_is_claimed(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate = host.gate()
    jobs = [gpu_lab.start(gate, "-M", "30G") for _ in range(4)]
    assert gpu_lab.places(*jobs) == [[0], [1], [0], [1]]
    fits = gpu_lab.start(gate, "-M", "19G")
    waits = gpu_lab.submit("-M", "20G", "true")
    other = gpu_lab.submit("--gpus", "0", "true")
    assert gpu_lab.wait(other) == 0
    assert gpu_lab.state(waits) == "queued"
    assert "it needs 1 GPU with 20 GiB free" in gpu_lab.why(waits)
    gate.open()
    assert gpu_lab.wait(*jobs, fits, waits) == 0


def test_job_finds_its_memory_claim_in_the_environment(gpu_lab: GpuLab) -> None:
    job = gpu_lab.submit("-M", "1.5G", "echo $STOKER_GPU_MEM_MIB")
    assert gpu_lab.wait(job) == 0
    assert gpu_lab.log(job) == "1536\n"
    assert gpu_lab.job(job)["claim_bytes"] == 3 * GIB // 2


def test_job_without_declared_memory_shares_no_gpu(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate = host.gate()
    whole = gpu_lab.start(gate, "--gpu-ids", "0")
    small = gpu_lab.start(gate, "-M", "1G", "--gpu-ids", "1")
    waits = [gpu_lab.submit("-M", "1G", "--gpu-ids", "0", "true"),
             gpu_lab.submit("--gpu-ids", "1", "true")]  # fmt: skip
    other = gpu_lab.submit("--gpus", "0", "true")
    assert gpu_lab.wait(other) == 0
    assert [gpu_lab.state(job) for job in waits] == ["queued", "queued"]
    gate.open()
    assert gpu_lab.wait(whole, small, *waits) == 0


def test_memory_used_beyond_the_claim_is_not_given_to_other_jobs(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    gate = host.gate()
    too_big = gpu_lab.start(gate, "-M", "10G", "--gpu-ids", "0", size=50 * GIB)
    host.wait_for_sample()
    fits = gpu_lab.start(gate, "-M", "20G", "--gpu-ids", "0")
    waits = gpu_lab.submit("-M", "20G", "--gpu-ids", "0", "true")
    other = gpu_lab.submit("--gpus", "0", "true")
    assert gpu_lab.wait(other) == 0
    assert gpu_lab.state(waits) == "queued"
    gate.open()
    assert gpu_lab.wait(too_big, fits, waits) == 0


def test_claimed_memory_is_kept_for_a_job_that_does_not_use_it_yet(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    gate = host.gate()
    gpu_lab.start(gate, "-M", "50G", "--gpu-ids", "0")
    host.wait_for_sample()
    waits = gpu_lab.submit("-M", "50G", "--gpu-ids", "0", "true")
    other = gpu_lab.submit("--gpus", "0", "true")
    assert gpu_lab.wait(other) == 0
    assert gpu_lab.state(waits) == "queued"
    gate.open()
    assert gpu_lab.wait(waits) == 0


def test_burst_of_starts_never_overcommits_a_gpu(host: GpuHost, gpu_lab: GpuLab) -> None:
    """20 jobs at once, 3 of which fit on a GPU; each allocates memory after its start."""
    gate, places = host.gate(), gpu_lab.folder / "places"
    lines = gpu_lab.folder / "burst.txt"
    script = f"echo $CUDA_VISIBLE_DEVICES >> {places}; {hold_memory(gate, 24 * GIB)}"
    lines.write_text(f"{script}\n" * 20)
    gpu_lab.ok("submit", "-q", "-M", "25G", "--file", str(lines))
    gate.wait_for(6)
    host.wait_for_sample()
    assert len(gate.arrived()) == 6
    assert Counter(places.read_text().split()) == {"0": 3, "1": 3}
    assert all(gpu["memory_used_bytes"] == 72 * GIB for gpu in gpu_lab.gpus())
    gate.open()
    assert gpu_lab.wait() == 0
    assert set(gpu_lab.states().values()) == {"done"}
    assert len(places.read_text().split()) == 20


def test_twenty_concurrent_submits_never_overcommit_a_gpu(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate = host.gate()
    clients = [
        gpu_lab.popen("submit", "-q", "-M", f"{20 + number}G", hold_memory(gate, 20 * GIB))
        for number in range(20)
    ]
    ids = [int(client.communicate()[0]) for client in clients]
    assert sorted(ids) == list(range(1, 21))
    gate.wait_for(4)
    host.wait_for_sample()
    for gpu in gpu_lab.gpus():
        claimed = [job["claim_bytes"] for job in gpu["jobs"]]
        assert len(claimed) >= 2
        assert sum(claimed) <= gpu["memory_bytes"]
        assert gpu["memory_used_bytes"] <= gpu["memory_bytes"]
    gate.open()
    assert gpu_lab.wait() == 0


def test_wide_job_is_not_starved_by_a_stream_of_small_ones(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate, late = host.gate(), host.gate("late")
    small = [gpu_lab.start(gate, "-M", "30G") for _ in range(2)]
    wide = gpu_lab.submit("--gpus", "2", "true")
    more = [gpu_lab.submit("-M", "30G", late.wait) for _ in range(4)]
    assert gpu_lab.wait(gpu_lab.submit("--gpus", "0", "true")) == 0
    assert late.arrived() == []
    assert "reserved for job 3" in gpu_lab.why(more[0])
    late.open()
    gate.open()
    assert gpu_lab.wait(*small, wide, *more) == 0


def test_job_on_several_gpus_gets_its_memory_on_each(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate = host.gate()
    gpu_lab.start(gate, "-M", "50G", "--gpu-ids", "0")
    pair = gpu_lab.start(gate, "--gpus", "2", "-M", "20G", size=19 * GIB)
    assert gpu_lab.places(pair) == [[0, 1]]
    assert [gpu["memory_used_bytes"] for gpu in gpu_lab.gpus()] == [19 * GIB, 19 * GIB]
    waits = gpu_lab.submit("--gpus", "2", "-M", "40G", "true")
    other = gpu_lab.submit("--gpus", "0", "true")
    assert gpu_lab.wait(other) == 0
    assert gpu_lab.state(waits) == "queued"
    gate.open()
    assert gpu_lab.wait(pair, waits) == 0
