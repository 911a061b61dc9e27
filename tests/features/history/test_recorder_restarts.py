"""The daemon starts a usage recorder when jobs run, and restarts it when it dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from stoker.engine.supervisor import locks
from stoker.features.history.usage_charts import gpu_trace, job_trace
from stoker.features.history.usage_recorder import TRACER_LOCK
from tests.engine.gpus.host import H200, GpuHost
from tests.fake_nvml import GIB
from tests.helpers import Gate, is_alive
from tests.lab import Lab, wait_until

ALL = 1_000_000


def recorder_pid(lab: Lab) -> int | None:
    return locks.holder(str(lab.state_dir), TRACER_LOCK)


def count(lab: Lab, job: int) -> int:
    found = job_trace(str(lab.state_dir), job, ALL)
    return len(found["memory"].points) if "memory" in found else 0


def test_long_job_is_recorded_after_the_recorder_was_killed(quick_lab: Lab) -> None:
    job = quick_lab.submit("--gpus", "0", "sleep 600")
    wait_until(lambda: count(quick_lab, job) > 3, what="readings")
    pid, before = recorder_pid(quick_lab), count(quick_lab, job)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: count(quick_lab, job) > before + 3, what="more readings")
    log = (quick_lab.state_dir / "daemon.log").read_text()
    assert "the usage recorder was killed by signal 9" in log


def test_recorder_of_a_host_without_gpus_exits_with_the_last_job_and_restarts_with_the_next(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab(devices=0, STOKER_TRACE_SECONDS="0.02")
    for name in ("one", "two"):
        gate = Gate(lab.folder, name)
        job = lab.submit("--gpus", "0", gate.wait)
        wait_until(partial(count, lab, job), what="readings")
        gate.open()
        wait_until(lambda: recorder_pid(lab) is None, what="the recorder to exit")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_recorder_exits_with_its_daemon(quick_lab: Lab, number: int) -> None:
    lab = quick_lab
    job = lab.submit("--gpus", "0", "sleep 600")
    wait_until(lambda: count(lab, job), what="readings")
    pid, daemon = recorder_pid(lab), lab.daemon_pid()
    assert pid is not None and daemon is not None
    os.kill(daemon, number)
    wait_until(lambda: not is_alive(pid), what="its end")


def test_recording_can_be_switched_off(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=2, STOKER_TRACE_SECONDS="0")
    gate = Gate(lab.folder)
    job = lab.submit("--gpus", "0", gate.wait)
    gate.wait_for(1)
    gate.open()
    assert lab.wait(job) == 0
    assert not (lab.state_dir / "tracer.lock").exists()


@pytest.fixture
def host(tmp_path: Path, nvml_library: Path) -> Iterator[GpuHost]:
    made = GpuHost(tmp_path, nvml_library, H200, H200)
    yield made
    made.close()


def test_recorder_gets_gpu_samples_only_from_the_daemon(host: GpuHost) -> None:
    lab = host.lab(STOKER_TRACE_SECONDS="0.02")
    host.fake.change(host.uuids[0], util=80, power=400_000, temp=60)
    job = lab.start(host.gate(), "--gpu-ids", "0", size=5 * GIB)
    folder = str(lab.state_dir)
    wait_until(lambda: "gpu_memory" in job_trace(folder, job, ALL), what="its share")
    wait_until(lambda: "power" in gpu_trace(folder, host.uuids[1], 0, ALL), what="the other GPU")
    assert gpu_trace(folder, host.uuids[0], 0, ALL)["power"].points[-1][1] == 400
    loads, before, pid = host.fake.loads(), count(lab, job), recorder_pid(lab)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: count(lab, job) > before + 3, what="more readings")
    assert host.fake.loads() == loads  # the new recorder did not load the driver either
