"""A driver that is missing, broken or stuck blocks only GPU jobs, and is used again later."""

from __future__ import annotations

import json
import time

import pytest

from stoker.engine.devices.driver_process import ACTIVE_SECONDS
from tests.engine.gpus.host import GpuHost, GpuLab
from tests.fake_nvml import DRIVER_NOT_LOADED, LIBRARY_MISMATCH, FakeNvml

ABSENT = "no NVIDIA driver is installed: libnvidia-ml.so.1 was not found"
NOT_LOADED = "the NVIDIA driver is not loaded"
MISMATCH = "the NVIDIA library and the loaded driver have different versions; reboot the host"


def _break(fake: FakeNvml, how: str) -> None:
    if how == ABSENT:
        fake.uninstall()
    else:
        fake.fail_init(DRIVER_NOT_LOADED if how == NOT_LOADED else LIBRARY_MISMATCH)


def _repair(fake: FakeNvml) -> None:
    fake.fail_init(0)
    fake.install()


@pytest.mark.parametrize("how", [ABSENT, NOT_LOADED, MISMATCH])
def test_cpu_jobs_run_with_a_broken_driver_and_gpu_jobs_once_it_works(
    host: GpuHost, gpu_lab: GpuLab, how: str
) -> None:
    waits = gpu_lab.submit("--hold", "echo on gpu $CUDA_VISIBLE_DEVICES")
    _break(host.fake, how)
    gpu_lab.ok("release", str(waits))
    other = gpu_lab.submit("--gpus", "0", "echo no GPU needed")
    assert gpu_lab.wait(other) == 0
    assert gpu_lab.state(waits) == "queued"
    gpu_lab.wait_until(lambda: f"no GPU job starts: {how}" in gpu_lab.daemon_log())
    shown = json.loads(gpu_lab.ok("gpus", "--json"))
    assert (shown["gpus"], shown["gpu_error"], shown["nodes"]) == ([], how, [])
    _repair(host.fake)
    assert gpu_lab.wait(waits) == 0
    assert gpu_lab.log(waits) == "on gpu 0\n"
    assert len(gpu_lab.gpus()) == 2


def test_running_jobs_continue_while_the_driver_is_broken(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate = host.gate()
    runs = gpu_lab.start(gate)
    host.fake.fail("*", DRIVER_NOT_LOADED)
    gpu_lab.wait_until(lambda: NOT_LOADED in gpu_lab.daemon_log())
    waits = gpu_lab.submit("true")
    assert gpu_lab.state(runs) == "running"
    assert NOT_LOADED in gpu_lab.ok("gpus")
    gate.open()
    assert gpu_lab.wait(runs) == 0
    assert gpu_lab.state(waits) == "queued"
    host.fake.fail("*", 0)
    assert gpu_lab.wait(waits) == 0


def test_driver_that_hangs_does_not_block_cpu_jobs(host: GpuHost, gpu_lab: GpuLab) -> None:
    waits = gpu_lab.submit("--hold", "true")
    host.fake.hang()
    gpu_lab.ok("release", str(waits))
    other = gpu_lab.submit("--gpus", "0", "echo no GPU needed")
    assert gpu_lab.wait(other) == 0
    assert gpu_lab.state(waits) == "queued"
    host.fake.unhang()
    assert gpu_lab.wait(waits) == 0


def test_driver_that_starts_to_hang_is_detected_and_used_again_later(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    gate = host.gate()
    gpu_lab.start(gate)
    host.fake.hang("nvmlDeviceGetMemoryInfo_v2")
    silent = "the NVIDIA driver does not answer"
    # Without an answer of the driver; the resources of the host follow after an empty line.
    shown = gpu_lab.ok("gpus").partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in shown[1:-1]] == ["0", "1"]
    assert shown[-1] == silent
    gpu_lab.wait_until(lambda: f"no GPU job starts: {silent}" in gpu_lab.daemon_log())
    gate.open()
    waits = gpu_lab.submit("true")
    other = gpu_lab.submit("--gpus", "0", "true")
    assert gpu_lab.wait(other) == 0
    assert gpu_lab.state(waits) == "queued"
    host.fake.unhang()
    assert gpu_lab.wait(waits) == 0


def test_lost_gpu_does_not_block_the_others(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate = host.gate()
    gpu_lab.stay_awake(gate)
    host.fake.lose(host.uuids[0])
    gpu_lab.wait_until(lambda: gpu_lab.gpu(0)["state"] == "in quarantine: GPU is lost")
    jobs = [gpu_lab.submit("true") for _ in range(3)]
    assert gpu_lab.wait(*jobs) == 0
    assert gpu_lab.places(*jobs) == [[1], [1], [1]]
    waits = gpu_lab.submit("--gpu-ids", "0", "true")
    gpu_lab.wait_until(lambda: "GPU is lost" in gpu_lab.why(waits))
    assert gpu_lab.state(waits) == "queued"


def test_gpu_that_was_lost_from_the_start_does_not_renumber_the_others(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    host.fake.lose(host.uuids[0])
    assert [gpu["index"] for gpu in gpu_lab.gpus()] == [1]
    job = gpu_lab.submit("echo $CUDA_VISIBLE_DEVICES")
    assert gpu_lab.wait(job) == 0
    assert gpu_lab.log(job) == "1\n"


def test_removed_gpu_is_no_longer_used(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate = host.gate()
    gpu_lab.stay_awake(gate)
    host.fake.remove(host.uuids[1])
    host.wait_for_sample()
    jobs = [gpu_lab.submit("true") for _ in range(3)]
    assert gpu_lab.wait(*jobs) == 0
    assert gpu_lab.places(*jobs) == [[0], [0], [0]]


def test_job_whose_gpu_is_removed_does_not_keep_the_daemon_busy(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    gate, awake = host.gate(), host.gate("awake")
    gpu_lab.stay_awake(awake)
    job = gpu_lab.start(gate, "--gpu-ids", "1")
    host.fake.remove(host.uuids[1])
    host.wait_for_sample()
    gate.open()
    assert gpu_lab.wait(job) == 0
    host.wait_for_sample()
    calls, began = host.fake.calls("nvmlEventSetWait_v2"), time.monotonic()
    other = gpu_lab.submit("--gpus", "0", "sleep 0.5")
    assert gpu_lab.wait(other) == 0
    calls = host.fake.calls("nvmlEventSetWait_v2") - calls
    assert calls <= (time.monotonic() - began) / ACTIVE_SECONDS + 2


def test_doctor_reports_the_driver_problem(host: GpuHost, gpu_lab: GpuLab) -> None:
    assert "2 GPUs: NVIDIA H200" in gpu_lab.run("doctor").stdout
    host.fake.fail_init(LIBRARY_MISMATCH)
    done = gpu_lab.run("doctor")
    assert done.returncode == 1
    assert f"no GPU can be used: {MISMATCH}" in done.stdout


def test_job_is_not_treated_as_a_cpu_job_when_the_driver_fails(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    host.fake.fail_init(9)
    done = gpu_lab.run("submit", "python train.py")
    assert done.returncode == 69
    assert done.stderr.startswith("error: cannot find the GPUs of this host: ")
    assert gpu_lab.wait(gpu_lab.submit("--gpus", "0", "true")) == 0
