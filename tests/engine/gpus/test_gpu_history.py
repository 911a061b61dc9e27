"""Why GPUs of a driver are idle although jobs wait, in `stoker gpus --history`."""

from __future__ import annotations

import json

from tests.engine.gpus.host import GpuHost, GpuLab
from tests.fake_nvml import GIB


def reasons(lab: GpuLab, gpu: int) -> list[str]:
    gpus = json.loads(lab.ok("gpus", "--history", "1h", "--json"))["gpus"]
    found: list[dict[str, str]] = next((one["reasons"] for one in gpus if one["index"] == gpu), [])
    return [one["reason"] for one in found]


def wait_for_reason(lab: GpuLab, gpu: int, reason: str) -> None:
    lab.wait_until(lambda: any(one.startswith(reason) for one in reasons(lab, gpu)))


def test_gpu_used_by_another_process_says_so(host: GpuHost) -> None:
    lab = host.lab(STOKER_TRACE_SECONDS="0.05")
    others = [host.other_process(gpu, 1 * GIB) for gpu in (0, 1)]
    waits = lab.submit("true")
    wait_for_reason(lab, 0, "memory held by a process that Stoker did not start")
    for pid in others:
        host.end_other_process(pid)
    assert lab.wait(waits) == 0


def test_gpu_in_quarantine_says_why(host: GpuHost) -> None:
    lab = host.lab(STOKER_TRACE_SECONDS="0.05")
    lab.stay_awake(gate := host.gate())
    host.fake.lose(host.uuids[0])
    lab.wait_until(lambda: lab.gpu(0)["state"] == "in quarantine: GPU is lost")
    waits = lab.submit("--gpu-ids", "0", "true")
    wait_for_reason(lab, 0, "quarantined: GPU is lost")
    wait_for_reason(lab, 1, "the waiting jobs cannot run on it")
    host.fake.find(host.uuids[0])
    lab.ok("gpus", "restore", "0")
    gate.open()
    assert lab.wait(waits) == 0


def test_gpu_whose_driver_does_not_work_waits_for_it(host: GpuHost) -> None:
    lab = host.lab(STOKER_TRACE_SECONDS="0.05")
    lab.stay_awake(gate := host.gate())
    host.fake.hang()
    lab.wait_until(lambda: "no GPU job starts" in lab.daemon_log())
    waits = lab.submit("true")
    wait_for_reason(lab, 0, "waiting for the driver: ")
    host.fake.unhang()
    gate.open()
    assert lab.wait(waits) == 0
