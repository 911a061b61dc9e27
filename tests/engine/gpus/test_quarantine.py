"""A GPU with a hardware error is in quarantine until a user restores it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.helpers import refused
from tests.engine.gpus.host import GpuHost, GpuLab
from tests.fake_nvml import RESET_REQUIRED


def _check_avoided(lab: GpuLab, gpu: int) -> None:
    """Check that jobs run only on the other GPU."""
    jobs = [lab.submit("true") for _ in range(2)]
    assert lab.wait(*jobs) == 0
    assert lab.places(*jobs) == [[1 - gpu], [1 - gpu]]


def _check_used(lab: GpuLab, gpu: int) -> None:
    job = lab.submit("--gpu-ids", str(gpu), "true")
    assert lab.wait(job) == 0
    assert lab.places(job) == [[gpu]]


def _is_complete(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


def test_lost_gpu_stays_in_quarantine_when_it_returns(host: GpuHost, gpu_lab: GpuLab) -> None:
    gpu_lab.stay_awake(host.gate())
    host.fake.lose(host.uuids[0])
    gpu_lab.wait_until(lambda: gpu_lab.gpu(0)["state"] == "in quarantine: GPU is lost")
    host.fake.find(host.uuids[0])
    gpu_lab.ok("daemon", "stop")
    _check_avoided(gpu_lab, 0)
    waits = gpu_lab.submit("--gpu-ids", "0", "true")
    assert "in quarantine: GPU is lost" in gpu_lab.why(waits)
    assert gpu_lab.state(waits) == "queued"
    assert gpu_lab.ok("gpus", "restore", "0") == "GPU 0 restored: jobs can start on it\n"
    assert gpu_lab.wait(waits) == 0
    assert gpu_lab.gpu(0)["state"] == "free"


def test_lost_gpu_is_announced_to_its_job_and_to_the_default_place(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    received = gpu_lab.folder / "received"
    gpu_lab.ok("notify", "add", "lab", f"command:cat >> {received}")
    gpu_lab.ok("notify", "add", "me", f"command:cat >> {received}-by-me")
    path = gpu_lab.folder / "settings.toml"
    path.write_text(f"{path.read_text()}\n[notify]\nwhen = 'gpu-lost:lab'\ninterval = 0\n")
    gate = host.gate()
    command = f"{gate.wait}; exit 1"
    job = gpu_lab.submit("--gpu-ids", "0", "--name", "a", "--notify", "gpu-lost:me", command)
    gate.wait_for()
    host.fake.lose(host.uuids[0])
    gpu_lab.wait_until(lambda: _is_complete(received))
    message = json.loads(received.read_text().splitlines()[0])
    assert message["subject"] == "GPU 0 (NVIDIA H200) is not used any more: GPU is lost"
    gate.open()
    assert gpu_lab.wait(job) != 0
    assert gpu_lab.job(job)["cause"] == "gpu_lost"
    of_job = received.with_name("received-by-me")
    gpu_lab.wait_until(lambda: _is_complete(of_job))
    assert json.loads(of_job.read_text())["subject"].startswith("a lost its GPU after")


def test_gpu_that_is_restored_while_it_is_lost_is_not_used(host: GpuHost, gpu_lab: GpuLab) -> None:
    gpu_lab.stay_awake(host.gate())
    host.fake.lose(host.uuids[0])
    gpu_lab.wait_until(lambda: gpu_lab.gpu(0)["state"] == "in quarantine: GPU is lost")
    waits = gpu_lab.submit("--gpu-ids", "0", "true")
    gpu_lab.ok("gpus", "restore", "0")
    host.wait_for_sample()
    assert gpu_lab.state(waits) == "queued"
    assert "GPU is lost" in gpu_lab.why(waits)


def test_gpu_that_needs_a_reset_is_put_in_quarantine(host: GpuHost, gpu_lab: GpuLab) -> None:
    gpu_lab.stay_awake(host.gate())
    host.fake.fail("nvmlDeviceGetMemoryInfo_v2", RESET_REQUIRED, host.uuids[1])
    host.wait_for_sample()
    host.fake.fail("nvmlDeviceGetMemoryInfo_v2", 0, host.uuids[1])
    assert gpu_lab.gpu(1)["state"] == "in quarantine: GPU needs a reset"
    _check_avoided(gpu_lab, 1)


def test_serious_xid_puts_the_gpu_in_quarantine(host: GpuHost, gpu_lab: GpuLab) -> None:
    gpu_lab.stay_awake(host.gate())
    host.fake.xid(host.uuids[0], 79)
    reason = "in quarantine: the driver reported Xid 79"
    gpu_lab.wait_until(lambda: gpu_lab.gpu(0)["state"] == reason)
    _check_avoided(gpu_lab, 0)
    gpu_lab.ok("gpus", "restore", host.uuids[0])
    _check_used(gpu_lab, 0)


def test_application_xid_does_not_put_the_gpu_in_quarantine(host: GpuHost, gpu_lab: GpuLab) -> None:
    gpu_lab.stay_awake(host.gate())
    for code in (13, 31, 43, 45):
        host.fake.xid(host.uuids[0], code)
    host.wait_for_sample()
    assert gpu_lab.gpu(0)["state"] == "free"
    _check_used(gpu_lab, 0)


def test_new_uncorrectable_memory_errors_put_the_gpu_in_quarantine(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    host.fake.change(host.uuids[1], ecc=4)  # errors from before the daemon started
    gpu_lab.stay_awake(host.gate())
    assert gpu_lab.gpu(1)["state"] == "free"
    host.fake.change(host.uuids[1], ecc=6)
    reason = "in quarantine: uncorrectable ECC errors (2 more)"
    gpu_lab.wait_until(lambda: gpu_lab.gpu(1)["state"] == reason)
    _check_avoided(gpu_lab, 1)


def test_quarantine_survives_the_daemon(host: GpuHost, gpu_lab: GpuLab) -> None:
    gpu_lab.stay_awake(host.gate())
    host.fake.xid(host.uuids[0], 48)
    gpu_lab.wait_until(lambda: "Xid 48" in gpu_lab.gpu(0)["state"])
    daemon = gpu_lab.daemon_pid()
    gpu_lab.kill_daemon()
    gpu_lab.wait_until(lambda: gpu_lab.daemon_pid() not in (None, daemon))
    assert "Xid 48" in gpu_lab.gpu(0)["state"]
    _check_avoided(gpu_lab, 0)


def test_job_continues_on_a_gpu_in_quarantine(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate = host.gate()
    job = gpu_lab.start(gate, "--gpu-ids", "0")
    host.fake.xid(host.uuids[0], 79)
    gpu_lab.wait_until(lambda: "Xid 79" in gpu_lab.gpu(0)["state"])
    assert gpu_lab.state(job) == "running"
    gate.open()
    assert gpu_lab.wait(job) == 0
    assert "Xid 79" in gpu_lab.gpu(0)["state"]


def test_job_that_fails_with_its_gpu_is_retried_on_another(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate = host.gate()
    command = f"[ $STOKER_ATTEMPT = 2 ] || {{ {gate.wait}; exit 1; }}"
    job = gpu_lab.submit("--retries", "1", "--prefer", "0", command, STOKER_RETRY_DELAY="0.1s")
    gate.wait_for()
    host.fake.xid(host.uuids[0], 79)
    gpu_lab.wait_until(lambda: "Xid 79" in gpu_lab.gpu(0)["state"])
    gate.open()
    assert gpu_lab.wait(job) == 0
    assert gpu_lab.places(job) == [[1]]
    assert [attempt["devices"] for attempt in gpu_lab.job(job)["history"]] == [[0], [1]]


def test_restore_of_a_gpu_that_does_not_exist_is_refused(gpu_lab: GpuLab) -> None:
    refused(gpu_lab.run("gpus", "restore", "7"), 1, "there is no GPU `7`",
            "`stoker gpus` lists the GPUs")  # fmt: skip
