"""GPUs with processes that Stoker did not start are avoided, or shared by free memory."""

from __future__ import annotations

from tests.engine.gpus.host import USER, GpuHost, GpuLab
from tests.fake_nvml import GIB, MIB


def test_job_for_a_whole_gpu_avoids_gpus_with_other_processes(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    pid = host.other_process(0, 1 * GIB)
    jobs = [gpu_lab.submit("true") for _ in range(3)]
    assert gpu_lab.wait(*jobs) == 0
    assert gpu_lab.places(*jobs) == [[1], [1], [1]]
    waits = gpu_lab.submit("--gpus", "2", "true")
    reason = gpu_lab.why(waits)
    assert f"GPU 0 is used by others: {USER} (pid {pid}) has 1.0 GiB" in reason
    host.end_other_process(pid)
    assert gpu_lab.wait(waits) == 0
    assert gpu_lab.places(waits) == [[0, 1]]


def test_process_that_started_a_moment_ago_is_avoided(host: GpuHost, gpu_lab: GpuLab) -> None:
    """Although an idle daemon samples only every few seconds."""
    assert gpu_lab.wait(gpu_lab.submit("true")) == 0
    gpu_lab.ok("run", "--gpus", "0", "sleep", "1.5")  # not a job of the daemon
    host.other_process(0, 1 * GIB)
    job = gpu_lab.submit("true")
    assert gpu_lab.wait(job) == 0
    assert gpu_lab.places(job) == [[1]]


def test_job_with_declared_memory_uses_what_other_processes_leave(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    gate = host.gate()
    host.other_process(0, 50 * GIB)
    fits = gpu_lab.start(gate, "-M", "20G", "--gpu-ids", "0")
    waits = gpu_lab.submit("-M", "20G", "--gpu-ids", "0", "true")
    other = gpu_lab.submit("--gpus", "0", "true")
    assert gpu_lab.wait(other) == 0
    assert gpu_lab.state(waits) == "queued"
    assert "GPU 0 runs job 1 and is used by others" in gpu_lab.why(waits)
    assert "has 9.4 GiB free" in gpu_lab.why(waits)
    gate.open()
    assert gpu_lab.wait(fits, waits) == 0


def test_display_server_does_not_exclude_a_gpu(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate = host.gate()
    host.other_process(0, 300 * MIB, "graphics")
    job = gpu_lab.start(gate, "--gpu-ids", "0")
    assert gpu_lab.state(job) == "running"
    shown = gpu_lab.gpu(0)
    assert [(one["compute"], one["memory_bytes"]) for one in shown["other_processes"]] == [
        (False, 300 * MIB)
    ]


def test_memory_of_a_display_server_counts_as_used(host: GpuHost, gpu_lab: GpuLab) -> None:
    host.other_process(0, 10 * GIB, "graphics")
    waits = gpu_lab.submit("-M", "70G", "--gpu-ids", "0", "true")
    fits = gpu_lab.submit("-M", "69G", "--gpu-ids", "0", "-p", "1", "true")
    assert gpu_lab.wait(fits) == 0
    assert gpu_lab.state(waits) == "queued"


def test_memory_without_a_known_process_counts_as_used(host: GpuHost, gpu_lab: GpuLab) -> None:
    host.fake.change(host.uuids[0], used=50 * GIB)
    job = gpu_lab.submit("true")
    shared = gpu_lab.submit("-M", "25G", "--gpu-ids", "0", "true")
    assert gpu_lab.wait(job, shared) == 0
    assert gpu_lab.places(job, shared) == [[1], [0]]
    waits = [gpu_lab.submit(*options, "--gpu-ids", "0", "true") for options in ((), ("-M", "40G"))]
    assert "a hidden process has 50 GiB" in gpu_lab.why(waits[0])
    assert [gpu_lab.state(job) for job in waits] == ["queued", "queued"]


def test_little_memory_without_a_process_is_attributed_to_the_driver(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    host.fake.change(host.uuids[0], used=400 * MIB)
    assert gpu_lab.wait(gpu_lab.submit("--gpu-ids", "0", "true")) == 0
    assert gpu_lab.gpu(0)["state"] == "free"


def test_process_with_hidden_memory_is_avoided(host: GpuHost, gpu_lab: GpuLab) -> None:
    pid = host.other_process(0, None)
    host.fake.change(host.uuids[0], used=30 * GIB)
    job = gpu_lab.submit("true")
    assert gpu_lab.wait(job) == 0
    assert gpu_lab.places(job) == [[1]]
    waits = gpu_lab.submit("-M", "50G", "--gpu-ids", "0", "true")
    fits = gpu_lab.submit("-M", "40G", "--gpu-ids", "0", "-p", "1", "true")
    assert gpu_lab.wait(fits) == 0
    assert gpu_lab.state(waits) == "queued"
    [other] = gpu_lab.gpu(0)["other_processes"]
    assert other["pid"] == pid


def test_other_processes_are_shown_with_user_pid_and_memory(host: GpuHost, gpu_lab: GpuLab) -> None:
    pids = [host.other_process(0, 5 * GIB), host.other_process(0, 2 * GIB, "graphics")]
    shown = gpu_lab.ok("gpus")
    for pid, size in zip(pids, ("5.0 GiB", "2.0 GiB"), strict=True):
        assert f"other process: {USER} (pid {pid}) has {size}" in shown
    first, second = gpu_lab.gpus()
    assert (first["state"], second["state"]) == ("taken", "free")
    assert first["other_processes"] == [
        {"pid": pids[0], "user": USER, "memory_bytes": 5 * GIB, "compute": True},
        {"pid": pids[1], "user": USER, "memory_bytes": 2 * GIB, "compute": False},
    ]


def test_whole_process_tree_belongs_to_its_job(host: GpuHost, gpu_lab: GpuLab) -> None:
    """A child with its own session and environment."""
    gate = host.gate()
    child = f"setsid env -i sh -c 'echo 0 {7 * GIB} > {host.fake.claims}/$$; {gate.wait}'"
    job = gpu_lab.submit("-M", "10G", "--gpu-ids", "0", f"{child.replace(chr(39), chr(34))}")
    gate.wait_for()
    shown = gpu_lab.gpu(0)
    assert shown["other_processes"] == []
    assert shown["jobs"] == [{"id": job, "claim_bytes": 10 * GIB, "memory_bytes": 7 * GIB}]
