"""A GPU is used again only when no process or memory of the last job is left on it."""

from __future__ import annotations

import os
import signal

from tests.engine.gpus.host import GpuHost, GpuLab, hold_memory
from tests.fake_nvml import GIB
from tests.helpers import is_alive


def test_gpu_is_not_used_while_the_driver_still_lists_the_last_job(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    gate = host.gate()
    job = gpu_lab.start(gate, "--gpu-ids", "0")
    [pid] = gate.arrived()
    host.fake.add_process(host.uuids[0], pid, 5 * GIB, sticky=True)
    host.wait_for_sample()
    gate.open()
    assert gpu_lab.wait(job) == 0
    waits = gpu_lab.submit("--gpu-ids", "0", "true")
    assert gpu_lab.wait(gpu_lab.submit("--gpu-ids", "1", "true")) == 0
    assert gpu_lab.state(waits) == "queued"
    host.fake.remove_process(pid)
    assert gpu_lab.wait(waits) == 0


def test_gpu_is_not_shared_while_the_driver_still_lists_the_last_job(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    gate = host.gate()
    job = gpu_lab.start(gate, "-M", "10G", "--gpu-ids", "0")
    [pid] = gate.arrived()
    host.fake.add_process(host.uuids[0], pid, 70 * GIB, sticky=True)
    host.wait_for_sample()
    gate.open()
    assert gpu_lab.wait(job) == 0
    waits = gpu_lab.submit("-M", "10G", "--gpu-ids", "0", "true")
    assert gpu_lab.wait(gpu_lab.submit("--gpu-ids", "1", "true")) == 0
    assert gpu_lab.state(waits) == "queued"
    host.fake.remove_process(pid)
    assert gpu_lab.wait(waits) == 0


def test_gpu_is_not_used_while_memory_of_the_last_job_is_not_free(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    """The process is not listed any more, but its memory is not free yet."""
    gate = host.gate()
    job = gpu_lab.start(gate, "--gpu-ids", "0", size=20 * GIB)
    host.wait_for_sample()
    host.fake.change(host.uuids[0], used=20 * GIB)
    gate.open()
    assert gpu_lab.wait(job) == 0
    waits = gpu_lab.submit("--gpu-ids", "0", "true")
    assert gpu_lab.wait(gpu_lab.submit("--gpu-ids", "1", "true")) == 0
    assert gpu_lab.state(waits) == "queued"
    host.fake.change(host.uuids[0], used=0)
    assert gpu_lab.wait(waits) == 0


def test_new_daemon_avoids_a_gpu_where_the_driver_lists_a_dead_process(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    gate = host.gate()
    job = gpu_lab.start(gate, "--gpu-ids", "0")
    [pid] = gate.arrived()
    host.fake.add_process(host.uuids[0], pid, 5 * GIB, sticky=True)
    host.wait_for_sample()
    gate.open()
    assert gpu_lab.wait(job) == 0
    gpu_lab.ok("daemon", "stop")
    waits = gpu_lab.submit("--gpu-ids", "0", "true")
    assert gpu_lab.wait(gpu_lab.submit("--gpu-ids", "1", "true")) == 0
    assert gpu_lab.state(waits) == "queued"
    host.fake.remove_process(pid)
    assert gpu_lab.wait(waits) == 0


def test_leftover_processes_of_a_gpu_job_are_killed(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate, child = host.gate(), host.gate("child")
    script = hold_memory(child, 5 * GIB).replace("'", '"')
    job = gpu_lab.submit("--gpu-ids", "0", f"setsid sh -c '{script}' & {gate.wait}")
    [pid] = child.wait_for()
    gate.open()
    assert gpu_lab.wait(job) == 0
    assert not is_alive(pid)
    assert gpu_lab.wait(gpu_lab.submit("--gpu-ids", "0", "true")) == 0


def test_leftover_process_that_the_driver_lists_under_a_dead_pid_is_killed(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    """A forked child keeps the memory of a first process that has exited."""
    gate, child = host.gate(), host.gate("child")
    script = child.wait.replace("'", '"')
    command = f"setsid sh -c '{script}' & {hold_memory(gate, 5 * GIB)}"
    job = gpu_lab.submit("--keep-children", "--gpu-ids", "0", command)
    [pid] = gate.wait_for()
    [kept] = child.wait_for()
    host.fake.add_process(host.uuids[0], pid, 5 * GIB, sticky=True)
    host.wait_for_sample()
    gate.open()
    assert gpu_lab.wait(job) == 0
    gpu_lab.wait_until(lambda: not is_alive(kept))

    def polls_during_a_job() -> int:
        before = host.fake.calls("nvmlEventSetWait_v2")
        gpu_lab.ok("run", "--gpus", "0", "sleep", "1")
        return host.fake.calls("nvmlEventSetWait_v2") - before

    # After that, the driver is polled at the usual rate, even while it lists the process.
    while_listed = polls_during_a_job()
    host.fake.remove_process(pid)
    assert while_listed <= polls_during_a_job() + 3
    assert gpu_lab.wait(gpu_lab.submit("--gpu-ids", "0", "true")) == 0


def test_killed_job_releases_its_gpu(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate = host.gate()
    job = gpu_lab.start(gate, "--gpus", "2", size=50 * GIB)
    os.kill(gate.arrived()[0], signal.SIGKILL)
    assert gpu_lab.wait(gpu_lab.submit("--gpus", "2", "true")) == 0
    assert gpu_lab.job(job)["signal"] == signal.SIGKILL
    assert [gpu["memory_used_bytes"] for gpu in gpu_lab.gpus()] == [0, 0]
