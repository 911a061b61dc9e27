"""Special cases: GPUs that are being cleared, are lost, or are leased by an enclosing job."""

from __future__ import annotations

import sys

from tests.engine.gpus.host import OUT_OF_MEMORY, GpuHost, GpuLab
from tests.fake_nvml import GIB
from tests.helpers import Gate
from tests.lab import Lab


def test_gpu_that_is_being_cleared_stays_reserved_for_a_wide_job(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    first, second, late = host.gate("first"), host.gate("second"), host.gate("late")
    gpu_lab.start(first, "-M", "30G", "--gpu-ids", "0")
    gpu_lab.start(second, "-M", "30G", "--gpu-ids", "1")
    wide = gpu_lab.submit("--gpus", "2", "true")
    small = gpu_lab.submit("-M", "30G", late.wait)
    [pid] = first.arrived()
    host.fake.add_process(host.uuids[0], pid, 5 * GIB, sticky=True)
    host.wait_for_sample()
    first.open()
    assert gpu_lab.wait(1) == 0
    assert gpu_lab.wait(gpu_lab.submit("--gpus", "0", "true")) == 0
    host.wait_for_sample()
    assert late.arrived() == []
    host.fake.remove_process(pid)
    second.open()
    late.open()
    assert gpu_lab.wait(wide, small) == 0


def test_job_on_a_lost_gpu_is_stopped_and_retried_on_another(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    gate = host.gate()
    job = gpu_lab.start(gate, "--retries", "1", "--grace", "0s", "--prefer", "0")
    assert gpu_lab.places(job) == [[0]]
    host.fake.lose(host.uuids[0])
    gate.wait_for(2)
    gate.open()
    assert gpu_lab.wait(job) == 0
    assert [one["cause"] for one in gpu_lab.job(job)["history"]] == ["gpu_lost", "exit"]
    assert gpu_lab.places(job) == [[1]]


def test_gpu_keeps_its_number_when_another_vanishes_and_the_daemon_is_killed(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    gate = host.gate()
    job = gpu_lab.start(gate, "--gpu-ids", "1", size=5 * GIB)
    host.fake.remove(host.uuids[0])
    gpu_lab.kill_daemon()
    late = gpu_lab.submit("true")
    assert f"runs job {job}" in gpu_lab.why(late)
    [gpu] = gpu_lab.gpus()
    assert gpu["uuid"] == host.uuids[1] and gpu["jobs"][0]["id"] == job
    gate.open()
    assert gpu_lab.wait(job, late) == 0
    assert gpu_lab.job(late)["devices"][0]["uuid"] == host.uuids[1]


def test_foreground_run_inside_a_job_uses_the_gpus_of_that_job(gpu_lab: GpuLab) -> None:
    inner = f"{sys.executable} -m stoker run -q -- sh -c 'echo inside $CUDA_VISIBLE_DEVICES'"
    job = gpu_lab.submit("--gpu-ids", "1", inner)
    assert gpu_lab.wait(job) == 0
    assert gpu_lab.log(job) == "inside 1\n"


def test_foreground_run_refuses_a_gpu_that_does_not_exist(gpu_lab: GpuLab) -> None:
    done = gpu_lab.run("run", "--devices", "0,9", "true")
    assert done.returncode == 65
    assert "there is no GPU `9` on this host" in done.stderr


def test_foreground_run_recognizes_failure_causes(gpu_lab: GpuLab) -> None:
    line = f"echo '{OUT_OF_MEMORY}'; exit 1"
    done = gpu_lab.run("run", "--json", "-", input=f"{line}\n")
    assert '"cause": "gpu_oom"' in done.stdout


def test_gpu_memory_of_zero_is_refused(gpu_lab: GpuLab) -> None:
    assert gpu_lab.run("submit", "--gpu-mem", "0", "true").returncode == 2


def test_simulated_gpus_can_be_drained_and_have_slots(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.ok("gpus", "drain", "0")
    lab.ok("gpus", "slots", "2", "1")
    jobs = [lab.submit(gate.wait) for _ in range(3)]
    gate.wait_for(2)
    assert lab.state(jobs[2]) == "queued"
    lab.ok("gpus", "restore", "0")
    gate.wait_for(3)
    gate.open()
    assert lab.wait(*jobs) == 0
    assert sorted(lab.job(job)["devices"][0]["index"] for job in jobs) == [0, 1, 1]
